// Conveniences on top of pages that work without them: dialogs, theme, copying, keys, and a Stop
// that keeps asking with the same key until it knows whether it was recorded.
"use strict";
(() => {
  const root = document.documentElement;
  const cookie = (name) => document.cookie.match(new RegExp("(?:^|; )" + name + "=([^;]*)"))?.[1];
  const remember = (name, value) => { document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=lax`; };

  // ---- dialogs: the opener is a link to the same form as a page
  const open = (dialog) => {
    if (!dialog.open) dialog.showModal();
    dialog.querySelector("[data-first]")?.focus();
    dialog.dispatchEvent(new CustomEvent("dialog:open"));
  };
  const openedBy = (link) => link.dataset.dialog && document.getElementById(link.dataset.dialog);

  const copy = async (button) => {
    const label = button.querySelector("[data-label]"), before = label.textContent;
    const text = button.dataset.copy === "location" ? location.origin + location.pathname
      : button.dataset.copyFrom ? document.querySelector(button.dataset.copyFrom).innerText : button.dataset.copy;
    try { await navigator.clipboard.writeText(text); label.textContent = "Copied"; }
    catch { label.textContent = "Copy it by hand"; }
    setTimeout(() => { label.textContent = before; }, 2000);
  };

  const swapTheme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("theme", root.dataset.theme);
  };

  document.addEventListener("click", (ev) => {
    if (ev.ctrlKey || ev.metaKey || ev.shiftKey || ev.button) return;
    const el = ev.target.closest("[data-dialog],[data-close],[data-copy],[data-copy-from],[data-print]");
    if (!el) return;
    if (el.dataset.dialog && openedBy(el)) { ev.preventDefault(); open(openedBy(el)); }
    else if ("close" in el.dataset && el.closest("dialog")) { ev.preventDefault(); el.closest("dialog").close(); }
    else if ("copy" in el.dataset || "copyFrom" in el.dataset) copy(el);
    else if ("print" in el.dataset) window.print();
  });
  document.addEventListener("submit", (ev) => {
    if (ev.target.matches("[data-theme-form]")) { ev.preventDefault(); swapTheme(); }
    if (ev.target.matches("[data-stop]")) { ev.preventDefault(); stop(ev.target); }
  });
  document.addEventListener("change", (ev) => {
    if (ev.target.matches("[data-auto]")) ev.target.form.requestSubmit();
    if (ev.target.matches("[data-keys]")) remember("keys", ev.target.checked ? "on" : "off");
  });

  // ---- Stop
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const tell = (form, name, sentence) => {
    const place = form.closest("[data-stop-box]").querySelector("[data-answer]");
    const note = form.querySelector(`template[data-note="${name}"]`).content.cloneNode(true);
    if (sentence) note.querySelector("[data-sentence]").textContent = sentence;
    const dialog = form.closest("dialog"), said = document.getElementById("stop-said");
    if (dialog && said && !dialog.open) { said.textContent = note.textContent.trim(); said.hidden = false; }
    place.replaceChildren(note);
    place.scrollIntoView({ block: "nearest" });
  };
  const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const ask = async (form) => {
    const token = cookie("csrftoken");
    const answer = await fetch(form.action, {
      method: "POST", body: new FormData(form), signal: AbortSignal.timeout(8000),
      headers: { Accept: "application/json", ...(token && { "X-CSRFToken": token }) },
    });
    return answer.json();   // anything but our own answer (a proxy's page, half a body) throws: still unknown
  };
  const leave = (form, words) => {
    const button = form.closest("[data-stop-box]").querySelector("button[data-close]");
    if (button) button.textContent = words || button.dataset.words;
  };
  const stop = async (form) => {
    if (form.dataset.sending) return;
    form.dataset.sending = "yes";
    leave(form, "Hide this");   // "Keep running" would promise what nobody knows any more
    tell(form, "sending");
    for (let tries = 0, answer; ; tries += 1) {
      try { answer = await ask(form); } catch { answer = null; }
      if (typeof answer?.recorded === "boolean") { settle(form, answer); break; }   // null: the server can't say
      tell(form, "unknown");
      await wait(Math.min(5000, 500 * 2 ** tries));
    }
    delete form.dataset.sending;
    leave(form, "");
  };
  const settle = (form, answer) => {
    if (answer.sign_in) { location.assign(answer.sign_in); return; }
    if (!answer.recorded) { tell(form, "failed", answer.sentence); return; }
    const said = document.getElementById("stop-said"), dialog = form.closest("dialog");
    if (!dialog || !said) {
      try { sessionStorage.setItem("said", answer.sentence); } catch { /* the page it leads to shows the stop itself */ }
      location.assign(answer.href);
      return;
    }
    form.elements.key.value = fresh();   // this press is recorded; whatever is asked for next is another one
    said.textContent = answer.sentence;
    said.hidden = false;
    form.closest("[data-stop-box]").querySelector("[data-answer]").replaceChildren();
    dialog.close();
    history.replaceState(null, "", location.pathname);   // a form that came back in the address is done with
    said.focus();
    for (const el of document.querySelectorAll("[data-topic]")) htmx.trigger(document.body, "live:" + el.dataset.topic);
  };

  // ---- the answer to a press from a form of its own, on the page that it led to
  const told = () => {
    let sentence;
    try { sentence = sessionStorage.getItem("said"); sessionStorage.removeItem("said"); } catch { return; }
    if (!sentence) return;
    const note = Object.assign(document.createElement("p"), { className: "note", textContent: sentence, tabIndex: -1 });
    document.getElementById("main")?.prepend(note);
    note.focus();
  };
  told();

  // ---- what is stopped: the button says it, and a name is typed where a slip would reach far
  const choose = (box) => {
    const chosen = box.querySelector('[name="what"]:checked'), words = document.querySelector("[data-button-words]");
    if (chosen && words) words.textContent = chosen.dataset.button;
    for (const guard of box.querySelectorAll("[data-guard]")) {
      guard.hidden = guard.dataset.guard !== chosen?.value;
      guard.querySelector("input").disabled = guard.hidden;
    }
  };
  for (const box of document.querySelectorAll("#stop-what")) {
    box.addEventListener("change", () => choose(box));
    choose(box);
  }

  // ---- a zone that nobody chose yet is the browser's own
  const zone = document.querySelector("select[data-zone]"), here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && Array.from(zone.options).some((option) => option.value === here)) zone.value = here;

  // ---- the preview in the dialog may fail; the button beside it may not
  document.addEventListener("htmx:before:request", (ev) => { ev.detail.ctx.sourceElement.closest("[data-preview]")?.setAttribute("aria-busy", "true"); });
  document.addEventListener("htmx:finally:request", (ev) => {
    const place = ev.detail.ctx.sourceElement.closest("[data-preview]");
    if (!place) return;
    place.setAttribute("aria-busy", "false");
    if (ev.detail.ctx.status !== "swapped" || ev.detail.ctx.response.status >= 400) {
      place.replaceChildren(place.parentElement.querySelector("template[data-no-preview]").content.cloneNode(true));
    }
  });

  // ---- keys: they open things and never submit; switched off in the help
  const keys = {
    s: () => document.querySelector("[data-stop-open]")?.click(),
    "?": () => open(document.getElementById("help")),
    "/": () => document.querySelector("[data-filter]")?.focus(),
  };
  document.addEventListener("keydown", (ev) => {
    const dialog = document.querySelector("dialog[open]");
    if (ev.key === "Enter" && (ev.ctrlKey || ev.metaKey)) { (dialog ?? document).querySelector("form[data-stop]")?.requestSubmit(); return; }
    if (dialog || ev.ctrlKey || ev.metaKey || ev.altKey || cookie("keys") === "off") return;
    const typing = ev.target.matches("input,select,textarea,[contenteditable]");
    const left = ev.target.closest("dialog");   // shut, and no frame was drawn since: the focus is still in it
    if ((typing && !left) || !keys[ev.key]) return;
    ev.preventDefault();
    keys[ev.key]();
  });
  for (const box of document.querySelectorAll("[data-keys]")) box.checked = cookie("keys") !== "off";

  // ---- "4 s ago" goes on counting between two looks, by the server's clock
  const skew = Date.now() - Date.parse(document.querySelector("[data-now]")?.dataset.now ?? new Date());
  const span = (s) => (s < 60 ? `${s} s` : s < 3600 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`);
  setInterval(() => {
    for (const el of document.querySelectorAll("[data-ago]")) {
      el.textContent = span(Math.max(0, Math.round((Date.now() - skew - Date.parse(el.dataset.ago)) / 1000))) + (el.dataset.suffix ?? "");
    }
  }, 1000);

  // ---- after a sign-in the dialog comes back as it was left
  const returned = document.querySelector("dialog[data-open]");
  if (returned) open(returned);

  root.classList.add("js");
})();
