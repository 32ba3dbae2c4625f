// The console of a build: goes on from where the part that stands in the page ends, and follows.
// Text is put in as text; colours are classes; everything else a terminal would do is left out.
"use strict";

(() => {
  /** Lines of one piece of the page; the browser lays out only pieces that are seen. */
  const CHUNK = 200;
  /** Lines kept in one page: then the reader is asked to go on to the next part. */
  const MOST = 50_000;
  /** Bytes taken in one go. */
  const PIECE = 64 * 1024;
  /** The longest part of a line that is shown. */
  const LONGEST = 4_000;

  let reader = null;

  function begin() {
    const box = document.getElementById("console");
    if (!box || box.dataset.begun || box.dataset.more !== "1") return;
    box.dataset.begun = "1";
    read(box).catch(() => {});
  }

  function say(text) {
    const state = document.getElementById("console-state");
    if (state) state.textContent = text;
  }

  // ---- what a terminal would paint ----

  const plain = () => ({ bold: false, dim: false, colour: null });

  function set(paint, parameters) {
    const codes = parameters.split(";").map((code) => Number(code) || 0);
    for (let i = 0; i < codes.length; i++) {
      const code = codes[i];
      if (code === 0) Object.assign(paint, plain());
      else if (code === 1) paint.bold = true;
      else if (code === 2) paint.dim = true;
      else if (code === 22) paint.bold = paint.dim = false;
      else if (code >= 30 && code <= 37) paint.colour = code - 30;
      else if (code >= 90 && code <= 97) paint.colour = code - 90;
      else if (code === 39) paint.colour = null;
      else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : codes[i + 1] === 2 ? 4 : 1;
    }
  }

  const STAMP = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} \| /;
  const HEAD = /^(?:PLAY \[|TASK \[|(?:PRE-|POST-)?RUN START|CLEANUP START)/;
  const FAIL = /^(?:fatal:|ERROR)| \| failed \|| FAILED/;
  const SEQUENCE = /\x1b(?:\[([0-9;:?<=>!"' ]{0,62})([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|.|$)/gs;
  // What cannot be seen, or makes other text look different, is shown instead of done.
  const HIDDEN = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
  const shown = (text) =>
    text.replace(HIDDEN, (letter) => {
      const code = letter.charCodeAt(0);
      if (code < 0x20) return String.fromCharCode(0x2400 + code);
      if (code === 0x7f) return "\u2421";
      return `\u27e8U+${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
    });

  function put(into, text, paint) {
    if (!text) return;
    if (!paint.bold && !paint.dim && paint.colour === null) {
      into.append(shown(text));
      return;
    }
    const span = document.createElement("span");
    span.className = `a${paint.colour === null ? "" : ` c${paint.colour}`}${paint.bold ? " bold" : ""}${paint.dim ? " dim" : ""}`;
    span.textContent = shown(text);
    into.append(span);
  }

  function line(number, text, cut, paint) {
    const row = document.createElement("div");
    row.className = "line";
    row.id = `L${number}`;
    const link = document.createElement("a");
    link.href = `#L${number}`;
    link.textContent = String(number);
    link.setAttribute("aria-label", `line ${number}`);
    const code = document.createElement("code");
    if (text.endsWith("\r")) text = text.slice(0, -1);
    text = text.slice(text.lastIndexOf("\r") + 1);
    const stamp = STAMP.exec(text)?.[0];
    if (stamp) {
      const time = document.createElement("span");
      time.className = "ts";
      time.textContent = stamp;
      code.append(time);
      text = text.slice(stamp.length);
    }
    const head = text.slice(0, 200);
    if (HEAD.test(head)) row.classList.add("begins");
    else if (FAIL.test(head)) row.classList.add("fail");
    let from = 0;
    for (const match of text.matchAll(SEQUENCE)) {
      put(code, text.slice(from, match.index), paint);
      if (match[2] === "m") set(paint, match[1]);
      from = match.index + match[0].length;
    }
    put(code, text.slice(from), paint);
    if (cut) {
      const more = document.createElement("i");
      more.className = "muted";
      more.textContent = " … cut: the rest is in the raw text";
      code.append(more);
    }
    row.append(link, code);
    return row;
  }

  // ---- reading ----

  async function read(box) {
    const paint = plain();
    const began = Number(box.dataset.line);
    let number = began;
    let offset = Number(box.dataset.offset);
    let chunk = null;
    let rest = "";
    let dropped = false;
    let tries = 0;
    // Bytes read after the last whole line.
    let pending = 0;
    const marked = /^#L(\d+)$/.exec(location.hash)?.[1];
    const follow = () => document.getElementById("follow")?.checked && !marked;

    function add(texts) {
      const whole = document.createDocumentFragment();
      for (const { text, cut } of texts) {
        if (!chunk || chunk.childElementCount >= CHUNK) {
          chunk = document.createElement("div");
          chunk.className = "chunk";
          whole.append(chunk);
        }
        const row = line(number, text, cut, paint);
        if (String(number) === marked) row.classList.add("marked");
        chunk.append(row);
        number += 1;
      }
      box.append(whole);
      if (marked && number > Number(marked)) document.getElementById(`L${marked}`)?.scrollIntoView({ block: "nearest" });
      if (follow()) box.scrollTop = box.scrollHeight;
    }

    function take(bytes, decoder) {
      const texts = [];
      const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
      rest = parts.pop();
      for (const text of parts) {
        texts.push({ text: text.slice(0, LONGEST), cut: dropped || text.length > LONGEST });
        dropped = false;
      }
      if (rest.length > LONGEST) {
        rest = rest.slice(0, LONGEST);
        dropped = true;
      }
      // Bytes are counted up to the last whole line: from there it is read on after a break.
      const newline = bytes.lastIndexOf(10);
      if (newline >= 0) {
        offset += pending + newline + 1;
        pending = bytes.length - newline - 1;
      } else {
        pending += bytes.length;
      }
      if (texts.length) add(texts);
    }

    say("It goes on.");
    for (;;) {
      const decoder = new TextDecoder();
      const stopper = new AbortController();
      let ended = false;
      try {
        const answer = await fetch(`${box.dataset.url}&offset=${offset}&follow=1`, { signal: stopper.signal });
        if (answer.status === 404) {
          say("There is no console of this attempt here any more.");
          return;
        }
        if (!answer.ok) throw new Error(String(answer.status));
        reader = answer.body.getReader();
        rest = "";
        dropped = false;
        for (;;) {
          const { value, done } = await reader.read();
          if (done) {
            ended = true;
            break;
          }
          tries = 0;
          // However much comes at once, it is taken in pieces: the page ends where it is to end.
          for (let from = 0; from < value.length; from += PIECE) {
            take(value.subarray(from, from + PIECE), decoder);
            if (number - began >= MOST) {
              stopper.abort();
              next(box, offset, number);
              return;
            }
          }
          // The browser paints in between, however much comes.
          await new Promise((resume) => setTimeout(resume, 0));
        }
      } catch {
        // Told below.
      }
      pending = 0;
      if (ended) {
        if (rest) add([{ text: rest, cut: dropped }]);
        say(`The console ends here: ${number - 1} lines.`);
        return;
      }
      tries += 1;
      say("The connection broke; it is tried again.");
      await new Promise((resume) => setTimeout(resume, Math.min(1000 * 2 ** tries, 15000)));
    }
  }
  function next(box, offset, number) {
    const link = document.createElement("a");
    const url = new URL(box.dataset.page, location.href);
    url.searchParams.set("offset", String(offset));
    url.searchParams.set("line", String(number));
    link.href = url.pathname + url.search;
    link.textContent = `Read on from line ${number}`;
    say("So far for one page. ");
    document.getElementById("console-state")?.append(link);
  }

  // Reading on by hand ends following; the end of the console begins it again.
  document.addEventListener(
    "scroll",
    (event) => {
      const box = event.target;
      if (box.id !== "console" || !box.dataset.begun) return;
      const follow = document.getElementById("follow");
      if (follow) follow.checked = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    },
    true,
  );
  document.addEventListener("gatelog:shown", begin);
  addEventListener("pagehide", () => reader?.cancel().catch(() => {}));
  begin();
})();
