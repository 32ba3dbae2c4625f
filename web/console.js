// The console of a build: a window over lines the server makes. However long the console is, a few
// thousand lines of it are in the page; more come at either end as the reader gets there.
"use strict";

(() => {
  /** Lines asked for at once. */
  const PIECE = 500;
  /** Pieces kept in the page. */
  const KEPT = 12;
  /** How near its end the reader must be for more to be fetched, in pixels. */
  const NEAR = 1200;
  /** Pixels from the end that still count as being there. */
  const END = 40;

  const by = (id) => document.getElementById(id);
  let box = null;
  /** What is asked for now; another wish replaces it. */
  let asking = null;
  /** Whether that waits for a line that has not come yet. */
  let waiting = false;
  let following = false;
  let tries = 0;
  let later = null;

  const data = () => box.dataset;
  const number = (text) => Number(text) || 0;
  const first = () => number(box.firstElementChild?.dataset.first) || 1;
  const next = () => number(box.lastElementChild?.dataset.next) || 1;
  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < END;
  const over = () => data().ended === "1" && next() > number(data().known);
  const told = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");

  function say(text) {
    const state = by("console-state");
    if (state && state.textContent !== text) state.textContent = text;
  }

  function tell() {
    if (!box.childElementCount) return;
    const known = number(data().known);
    const size = data().size ? `, ${data().size}` : "";
    if (over()) say(`The console ends here: ${told(known)} lines${size}.`);
    else if (data().complete === "1") say(data().ended === "1" ? `${told(known)} lines${size}.` : `${told(known)} lines so far${size}.`);
    else say(`${told(known)} lines${size} and more.`);
  }

  function follow(on) {
    following = on;
    by("follow")?.setAttribute("aria-pressed", String(on));
    if (on) later ??= setTimeout(more, 0);
  }

  /** Asks for lines. Gives the new chunks, or null when there is nothing to show. */
  async function ask(query) {
    asking?.abort();
    const stopper = new AbortController();
    asking = stopper;
    waiting = query.wait === "true";
    try {
      const url = new URL(data().lines, location.href);
      for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
      const answer = await fetch(url, { signal: stopper.signal });
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      const part = made.getElementById("part");
      if (!part) throw Object.assign(new Error(made.body.textContent), { status: answer.status });
      for (const name of ["known", "size", "complete", "ended"]) data()[name] = part.dataset[name];
      failure(part.dataset.failure);
      tries = 0;
      return [...part.children].map((chunk) => document.importNode(chunk, true));
    } finally {
      if (asking === stopper) asking = null;
    }
  }

  /** Tells of the first failure once it is known. */
  function failure(line) {
    if (!line || by("first-failure")) return;
    const link = document.createElement("a");
    link.className = "chip bad";
    link.id = "first-failure";
    link.dataset.line = line;
    link.href = address(line);
    link.textContent = `first failure: line ${told(number(line))}`;
    box.closest("section").querySelector("header").append(link);
  }

  function address(line) {
    const url = new URL(data().page, location.href);
    url.searchParams.set("line", line);
    return `${url.pathname}${url.search}#L${line}`;
  }

  /** Puts chunks at the end, or at the beginning, and lets go of those furthest away. */
  function put(chunks, ahead) {
    if (!chunks.length) return;
    if (!ahead) {
      box.append(...chunks);
      while (box.childElementCount > KEPT && !following) lose(box.firstElementChild, true);
      while (following && box.childElementCount > KEPT) box.firstElementChild.remove();
      return;
    }
    const before = box.scrollHeight;
    box.prepend(...chunks);
    box.scrollTop += box.scrollHeight - before;
    while (box.childElementCount > KEPT) lose(box.lastElementChild, false);
  }

  /** Takes a chunk out; what the reader sees stays where it is. */
  function lose(chunk, above) {
    const before = box.scrollHeight;
    chunk.remove();
    if (above) box.scrollTop -= before - box.scrollHeight;
  }

  /** Fetches what comes next, where the reader is near an end; follows where that is wanted. */
  async function more() {
    clearTimeout(later);
    later = null;
    if (!box || (asking && !waiting) || document.hidden) return;
    const down = following || box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    try {
      const up = !following && box.scrollTop < NEAR && first() > 1;
      if (asking && !up) return;
      if (down && !up && !over()) {
        const behind = next() <= number(data().known) || data().complete !== "1";
        // A jump to the end, however far it is, when much lies between.
        if (following && number(data().known) - next() > PIECE * 2) return await end();
        if (!behind && data().ended === "1") return;
        const chunks = await ask({ line: next(), count: PIECE, ...(behind ? {} : { wait: "true" }) });
        put(chunks, false);
        if (following) box.scrollTop = box.scrollHeight;
        tell();
        later = setTimeout(more, chunks.length ? 150 : 400);
      } else if (up) {
        const from = Math.max(1, first() - PIECE);
        put(await ask({ line: from, count: first() - from }), true);
        later = setTimeout(more, 0);
      }
    } catch (error) {
      trouble(error, more);
    }
  }

  /** Says what is wrong and tries again, ever more slowly. */
  function trouble(error, again) {
    if (error.name === "AbortError") return;
    tries += 1;
    const gone = error.status === 404 && data().running !== "1";
    if (gone) return say("There is no console of this attempt here any more.");
    if (error.status !== 404) say(`${error.status ? error.message : "There is no answer"}. It is tried again.`);
    later = setTimeout(again, Math.min(500 * 2 ** tries, 15000));
  }

  /** Shows the lines around one and marks it. */
  async function go(line, focus) {
    follow(false);
    clearTimeout(later);
    later = null;
    if (!by(`L${line}`)) {
      try {
        let chunks = [];
        // Lines that were never counted are counted first, part by part.
        do {
          say(`Counting lines: ${told(number(data().known))} …`);
          chunks = await ask({ line: Math.max(1, line - PIECE / 2), count: PIECE });
        } while (!chunks.length && data().complete !== "1");
        if (chunks.length) box.replaceChildren(...chunks);
        tell();
        if (!by(`L${line}`)) say(`There is no line ${told(line)}: there are ${told(number(data().known))}.`);
      } catch (error) {
        return trouble(error, () => go(line, focus));
      }
    }
    mark(line);
    history.replaceState(null, "", address(line));
    if (focus) box.focus({ preventScroll: true });
    later = setTimeout(more, 150);
  }

  function mark(line) {
    for (const old of box.querySelectorAll(".marked")) old.classList.remove("marked");
    const row = by(`L${line}`);
    if (!row) return;
    row.classList.add("marked");
    box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
  }

  /** Has all lines counted, so that a first failure far down is known. */
  async function count() {
    while (data().complete !== "1" && !by("first-failure") && !document.hidden) {
      await ask({ line: number(data().known) + 1, count: 1 });
      tell();
    }
    later ??= setTimeout(more, 0);
  }

  /** Shows the end. */
  async function end() {
    do {
      const chunks = await ask({ line: "last", count: PIECE });
      if (chunks.length) box.replaceChildren(...chunks);
      tell();
    } while (data().complete !== "1");
    box.scrollTop = box.scrollHeight;
    later = setTimeout(more, 150);
  }

  // ---- looking for something ----

  async function find(from, offset) {
    const form = by("find");
    const url = new URL(data().found, location.href);
    url.searchParams.set("text", form.elements.text.value);
    if (form.elements.regex.checked) url.searchParams.set("regex", "true");
    if (from) url.searchParams.set("line", from);
    if (offset) url.searchParams.set("offset", offset);
    const place = by("found");
    place.textContent = "Looking …";
    try {
      const answer = await fetch(url);
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      place.replaceChildren(...[...made.body.childNodes].map((node) => document.importNode(node, true)));
      if (!from) place.querySelector("[data-line]")?.click();
    } catch {
      place.textContent = "There is no answer: look again.";
    }
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!box || (form.id !== "find" && form.id !== "to-line")) return;
    event.preventDefault();
    if (form.id === "find") find(null);
    else go(Math.max(1, number(form.elements.line.value)), true);
  });

  document.addEventListener("click", (event) => {
    if (!box || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const target = event.target.closest?.("#follow, #found .more, [data-line], .line > a");
    if (!target || !box.closest("section").contains(target)) return;
    if (target.id === "follow") {
      follow(!following);
      if (following) end().catch((error) => trouble(error, more));
      return;
    }
    event.preventDefault();
    if (target.matches(".more")) return void find(target.dataset.from, target.dataset.offset);
    for (const old of document.querySelectorAll("#found [aria-current]")) old.removeAttribute("aria-current");
    if (target.closest("#found")) target.setAttribute("aria-current", "true");
    go(number(target.dataset.line || target.textContent), !target.closest("#found"));
  });

  document.addEventListener("keydown", (event) => {
    if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Home") go(1, true);
    else if (event.key === "End") end().catch((error) => trouble(error, more));
    else return;
    event.preventDefault();
  });

  // Reading on by hand ends following; the end of a running console begins it again.
  document.addEventListener(
    "scroll",
    (event) => {
      if (!box || event.target !== box) return;
      if (following && !atEnd()) follow(false);
      else if (!following && atEnd() && data().running === "1" && next() > number(data().known)) follow(true);
      later ??= setTimeout(more, 50);
    },
    true,
  );
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) asking?.abort();
    else later ??= setTimeout(more, 0);
  });
  addEventListener("pagehide", () => asking?.abort());

  function begin() {
    const found = by("console");
    if (!found || found === box) return;
    asking?.abort();
    box = found;
    const marked = number(/^#L(\d+)$/.exec(location.hash)?.[1] || new URLSearchParams(location.search).get("line"));
    if (marked) {
      go(marked, false);
    } else if (data().running === "1") {
      follow(true);
    } else if (data().fails === "1" && data().failure && !new URLSearchParams(location.search).has("from")) {
      // What people come for. The address stays: nobody asked for that line.
      const row = by(`L${data().failure}`);
      if (row) box.scrollTop += row.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 2;
    }
    else if (data().fails === "1" && !data().failure) count().catch((error) => trouble(error, more));
    if (data().ended !== "1" || data().complete !== "1") later ??= setTimeout(more, 0);
  }
  document.addEventListener("gatelog:shown", begin);
  begin();
})();
