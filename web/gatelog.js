// What the page does beyond what the server made: it changes by itself, and moves through time without
// being sent. Every piece of HTML comes from the server, where all text from outside is escaped; here
// documents are parsed (scripts in them do not run) and their differences carried over node by node.
"use strict";

(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const main = () => document.getElementById("main");
  const time = () => document.getElementById("time");
  const past = () => time()?.dataset.then === "1";

  // ---- carrying a new document over into the shown one ----

  const keyOf = (node) => (node.nodeType === 1 ? node.id || node.dataset?.key || null : null);

  /** Makes `shown` as `made` is, keeping nodes that stay: focus, selection and open details survive. */
  function carry(shown, made) {
    if (shown.nodeType !== made.nodeType || shown.nodeName !== made.nodeName || keyOf(shown) !== keyOf(made)) {
      shown.replaceWith(document.importNode(made, true));
      return;
    }
    if (shown.nodeType !== 1) {
      if (shown.nodeValue !== made.nodeValue) shown.nodeValue = made.nodeValue;
      return;
    }
    const keep = shown.dataset?.keep;
    if (keep === "all") return;
    for (const { name } of [...shown.attributes]) {
      if (name === "open" && shown.nodeName === "DETAILS") continue;
      if (!made.hasAttribute(name)) shown.removeAttribute(name);
    }
    for (const { name, value } of made.attributes) {
      if (name === "open" && shown.nodeName === "DETAILS") continue;
      if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
    }
    if (shown.nodeName === "INPUT" || shown.nodeName === "SELECT") {
      // What somebody is typing stays; the slider goes along unless it is held.
      if (shown.type === "range" && !dragging) shown.value = made.getAttribute("value");
      return;
    }
    children(shown, made);
  }

  function children(shown, made) {
    const keyed = new Map();
    for (const child of shown.childNodes) {
      const key = keyOf(child);
      if (key) keyed.set(key, child);
    }
    let place = shown.firstChild;
    for (const child of [...made.childNodes]) {
      const key = keyOf(child);
      const same = key ? keyed.get(key) : place && !keyOf(place) && place.nodeName === child.nodeName ? place : null;
      if (!same) {
        shown.insertBefore(document.importNode(child, true), place);
        continue;
      }
      if (same === place) place = place.nextSibling;
      else shown.insertBefore(same, place);
      carry(same, child);
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  /** Shows a page the server made in place of this one. */
  function show(text) {
    const made = new DOMParser().parseFromString(text, "text/html");
    const content = made.getElementById("main");
    if (!content) return false;
    document.title = made.title;
    const top = document.querySelector(".top");
    const madeTop = made.querySelector(".top");
    if (top && madeTop) {
      const state = document.getElementById("live")?.dataset.state;
      const word = document.getElementById("live")?.textContent;
      carry(top, madeTop);
      const live = document.getElementById("live");
      if (live && state && made.getElementById("live")) {
        live.dataset.state = state;
        live.textContent = word;
      }
    }
    if (time() && made.getElementById("time")) carry(time(), made.getElementById("time"));
    carry(main(), content);
    skew = Date.now() - Number(main().dataset.clock || Date.now());
    tick();
    document.dispatchEvent(new CustomEvent("gatelog:shown"));
    return true;
  }

  // ---- stretches that run on ----

  let skew = Date.now() - Number(main()?.dataset.clock || Date.now());
  const now = () => Date.now() - skew;

  /** As the server tells stretches. */
  function took(ms) {
    const s = Math.floor(Math.max(ms, 0) / 1000);
    if (s < 10) return `${s}.${Math.floor((Math.max(ms, 0) % 1000) / 100)} s`;
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
  }

  function tick() {
    if (past() || document.hidden) return;
    const at = now();
    for (const span of document.querySelectorAll("[data-since]")) {
      const ms = Math.floor((at - Number(span.dataset.since)) / 1000) * 1000;
      span.textContent = ms < 10000 ? `${Math.max(ms, 0) / 1000} s` : took(ms);
    }
    for (const bar of document.querySelectorAll("progress[data-start]")) {
      bar.value = Math.min(at - Number(bar.dataset.start), Number(bar.dataset.estimate) * 0.99);
    }
    for (const span of document.querySelectorAll("[data-left]")) {
      const left = Number(span.dataset.left) - (at - Number(span.dataset.from));
      span.textContent = left >= 0 ? `about ${Math.ceil(left / 1000)} s left` : `${took(-left)} over its mean`;
      if (left >= 60000) span.textContent = `about ${took(left)} left`;
    }
  }
  setInterval(tick, 1000);

  // ---- live ----

  let source = null;
  let poller = null;
  let last = Number(time()?.dataset.at || 0);
  let refused = 0;
  let asking = false;
  let again = false;
  let resting = null;

  function say(state, word) {
    const live = document.getElementById("live");
    if (!live) return;
    live.dataset.state = state;
    live.textContent = word;
  }

  /** Fetches this page anew. One at a time, and not again before it has rested: what changes meanwhile
   *  is in the next. A page that takes long is fetched less often. */
  async function refresh() {
    if (asking || resting) {
      again = true;
      return;
    }
    asking = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.ok && !past()) {
        show(await answer.text());
        last = Number(time()?.dataset.at || last);
      }
    } finally {
      asking = false;
      resting = setTimeout(
        () => {
          resting = null;
          if (!again) return;
          again = false;
          refresh().catch(() => say("late", "no answer"));
        },
        Math.max(400, 4 * (performance.now() - began)),
      );
    }
  }

  // Bars that grow need the server's scale: it is asked for while something runs.
  setInterval(() => {
    if (main()?.dataset.live !== "1" || past() || document.hidden) return;
    if (document.querySelector(".gantt rect.running")) refresh().catch(() => {});
  }, 5000);

  function poll() {
    if (poller) return;
    say("polling", "asks every 5 s");
    poller = setInterval(() => {
      refresh().catch(() => say("late", "no answer"));
      // The stream may be had again.
      if (++refused % 6 === 0) start();
    }, 5000);
  }

  function stop() {
    source?.close();
    source = null;
    clearInterval(poller);
    poller = null;
  }

  function start() {
    stop();
    const page = main();
    if (!page || page.dataset.live !== "1" || past() || document.hidden) return;
    const tenant = page.dataset.tenant;
    if (!window.EventSource) {
      poll();
      return;
    }
    const stream = tenant ? `/api/tenant/${encodeURIComponent(tenant)}/status/stream?brief=1&from=` : "/api/events?from=";
    source = new EventSource(stream + last);
    source.onopen = () => say("live", "live");
    const changed = (message) => {
      last = Number(message.lastEventId) || last;
      say("live", "live");
      refresh().catch(() => say("late", "no answer"));
    };
    source.addEventListener(tenant ? "status" : "message", changed);
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        poll();
      } else {
        say("late", "connecting");
      }
    };
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      stop();
    } else if (!past()) {
      refresh().catch(() => {});
      start();
    }
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => {
    if (event.persisted) start();
  });

  // ---- through time ----

  let dragging = false;
  let wanted = null;
  let moving = false;

  function address(at) {
    const url = new URL(location.href);
    if (at === null) url.searchParams.delete("at");
    else url.searchParams.set("at", String(at));
    return url;
  }

  /** Goes to a moment (`null`: now). While one is fetched only the newest wish is kept. */
  async function go(at) {
    wanted = { at };
    if (moving) return;
    moving = true;
    try {
      while (wanted) {
        const { at: next } = wanted;
        wanted = null;
        const url = address(next);
        if (next !== null) stop();
        const answer = await fetch(url, { headers: { accept: "text/html" } });
        const text = await answer.text();
        if (answer.status === 404 || !show(text)) {
          // What the page is about was not there yet: say so in its place.
          location.assign(url);
          return;
        }
        history.replaceState(null, "", url);
        const live = document.getElementById("live");
        if (next === null && live) {
          last = Number(time()?.dataset.at || last);
          start();
        }
      }
    } catch {
      say("late", "no answer");
    } finally {
      moving = false;
    }
  }

  document.addEventListener("input", (event) => {
    if (event.target.id !== "at") return;
    const slider = event.target;
    dragging = true;
    const told = document.querySelector("#at-told b");
    if (told) told.textContent = slider.value;
    go(Number(slider.value));
  });
  document.addEventListener("change", (event) => {
    if (event.target.id === "at") dragging = false;
  });
  document.addEventListener("click", (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.target.closest?.("a.step, #back-to-now");
    if (!link) return;
    event.preventDefault();
    const at = new URL(link.href).searchParams.get("at");
    const { id } = link;
    const { step } = link.dataset;
    go(at === null ? null : Number(at)).then(() => {
      // The focus stays on the way, also where a step has ended.
      if (document.activeElement !== document.body) return;
      const next = step ? document.querySelector(`a[data-step="${step}"]`) : null;
      (next || document.getElementById(id === "back-to-now" ? "at" : id) || document.getElementById("at"))?.focus();
    });
  });

  start();
})();
