// The list of runs: how many are selected is said, and one box selects all that are shown. The rows come
// from a live region, so everything here listens at the document.
"use strict";
(() => {
  const form = document.getElementById("bulk");
  if (!form || form.elements.all) return;
  const boxes = () => [...document.querySelectorAll('input[name="run"][form="bulk"]')];
  const many = (number) => `${number} run${number === 1 ? "" : "s"}`;
  const say = (spoken) => {
    const all = boxes(), chosen = all.filter((box) => box.checked).length;
    const shown = document.querySelector("[data-select-shown]");
    if (shown) { shown.checked = chosen > 0 && chosen === all.length; shown.indeterminate = chosen > 0 && chosen < all.length; }
    form.querySelector("[data-selected]").textContent = chosen ? `${many(chosen)} selected.` : "Select runs to stop several at once.";
    form.querySelector("[data-selected-stop] [data-label]").textContent = chosen === 1 ? "Stop 1 selected run…" : `Stop ${chosen || ""} selected runs…`.replace("  ", " ");
    form.classList.toggle("is-empty", !chosen);
    if (spoken) document.getElementById("status").textContent = `${many(chosen)} selected`;
  };
  document.addEventListener("change", (ev) => {
    if (ev.target.matches("[data-select-shown]")) for (const box of boxes()) box.checked = ev.target.checked;
    if (ev.target.matches('[data-select-shown],[name="run"]')) say(true);
  });
  form.querySelector("[data-select-none]").addEventListener("click", () => {
    for (const box of boxes()) box.checked = false;
    say(true);
  });
  document.addEventListener("htmx:after:swap", () => say(false));
  say(false);
})();
