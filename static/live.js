// Hints in, fetches out. A hint {seq, topics} says that something changed, never what:
// each region fetches itself again, so every look is checked like a first one.
"use strict";
(() => {
  const POLL = 10000, POLL_AFTER = 3;
  const pill = document.getElementById("fresh"), toggle = document.getElementById("live-toggle");
  const status = document.getElementById("status");
  const topics = [...new Set([...document.querySelectorAll("[data-topic]")].map((el) => el.dataset.topic))];
  if (!pill || !topics.length || !window.htmx) return;

  let socket, ended = "", open = false, failures = 0, fetchFailed = false, paused = false, waiting = 0;
  let heard = Date.now(), said = "", saidAt = 0, favicon = "normal";

  const shown = () => document.querySelector("[data-as-of]")?.dataset.asOf ?? "";
  const words = () => {
    if (ended) return [ended, "reload", "st-abandoned"];
    if (paused) return ["Paused by you", `${waiting} changes waiting`, "st-paused"];
    if (open && !fetchFailed) return ["Live", `as of ${shown()}`, "st-settled"];
    if (failures < POLL_AFTER && !fetchFailed) return ["Reconnecting…", `showing ${shown()}`, "st-before"];
    return ["Not live.", `Checking every 10 s. Last check ${shown()}`, "st-before"];
  };
  const show = () => {
    const [first, rest, icon] = words(), use = pill.querySelector("use");
    const joined = { "Paused by you": " — ", "Signed out": " — ", "No longer allowed": " — " }[first] ?? " ";
    pill.querySelector("b").textContent = first;
    pill.querySelector("[data-rest]").textContent = joined + rest;
    use.setAttribute("href", use.getAttribute("href").replace(/#.*/, "#" + icon));
    pill.dataset.state = ended ? "ended" : first.toLowerCase().replace(/\W+$/, "").replace(/\W+/g, "-");
  };
  const end = (why) => { ended = why; socket?.close(); show(); };

  const refetch = (which) => {
    heard = Date.now();
    if (ended) return;
    if (paused) { waiting += 1; show(); return; }
    for (const topic of which) htmx.trigger(document.body, "live:" + topic);
  };

  const connect = () => {
    if (ended) return;
    socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/live/");
    socket.onopen = () => socket.send(JSON.stringify({ topics }));
    socket.onmessage = (message) => {
      const hint = JSON.parse(message.data);
      open = true; failures = 0; show();
      refetch(hint.topics.filter((topic) => topics.includes(topic)));
    };
    socket.onclose = ({ code }) => {
      open = false; failures += 1;
      if (code === 4401) return end("Signed out");
      if (code === 4403) return end("No longer allowed");
      show();
      setTimeout(connect, Math.min(15000, 250 * 2 ** failures) * (0.75 + Math.random() / 2));
    };
  };

  // Polling stays on as the safety net: ten quiet seconds are never taken as "nothing happened".
  setInterval(() => { if (Date.now() - heard >= POLL && !paused) refetch(topics); }, 1000);

  const announce = () => {
    const summary = document.querySelector("[data-summary]")?.dataset.summary ?? "";
    if (summary === said) return;
    if (Date.now() - saidAt < 5000) { setTimeout(announce, 5000 - (Date.now() - saidAt)); return; }
    if (said) status.textContent = summary;
    said = summary; saidAt = Date.now();
  };
  const mark = () => {
    const link = document.getElementById("favicon"), now = document.querySelector("[data-favicon]")?.dataset.favicon;
    if (link && now && now !== favicon) link.href = link.dataset[now];
    favicon = now ?? favicon;
  };

  const region = (ev) => ev.detail.ctx.sourceElement.matches("[data-topic]");
  document.addEventListener("htmx:after:request", (ev) => {
    if (!region(ev)) return;
    const code = ev.detail.ctx.response.status;
    if (code === 401) return end("Signed out");
    if (code === 403 || code === 404) return end("No longer allowed");
    fetchFailed = code >= 500; show();
  });
  document.addEventListener("htmx:error", (ev) => { if (ev.detail.ctx && region(ev)) { fetchFailed = true; show(); } });
  document.addEventListener("htmx:after:swap", () => { show(); mark(); announce(); });
  toggle?.addEventListener("click", () => {
    paused = !paused;
    toggle.setAttribute("aria-pressed", String(paused));
    if (!paused) { waiting = 0; refetch(topics); }
    show();
  });
  toggle?.removeAttribute("hidden");
  pill.setAttribute("href", location.href);
  announce(); mark(); show(); connect();
})();
