// The unknowns desk: what a press came to is read out, and how many are selected is said. Rows and item
// come from live regions, so everything here listens at the document.
"use strict";
(() => {
  const status = document.getElementById("status"), acts = document.getElementById("bulk-acts");
  let read;
  const boxes = () => [...document.querySelectorAll('input[name="unknown"][form="bulk"]')];
  const say = () => {
    if (!acts) return;
    const chosen = boxes().filter((box) => box.checked).length;
    acts.querySelector("[data-selected]").textContent = chosen ? `${chosen} selected: check, assign, resolve` : "Several at once: select, then";
    if (chosen) acts.open = true;
  };
  document.addEventListener("change", (ev) => { if (ev.target.matches('[name="unknown"][form="bulk"]')) say(); });
  document.addEventListener("htmx:after:swap", () => {
    say();
    const said = document.querySelector("[data-said]");
    if (said && said !== read) status.textContent = said.textContent;
    read = said;
  });
  say();
})();
