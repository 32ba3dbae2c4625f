// gatelog's page as people use it: in Chromium, against a site whose story the test tells.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

const { GATELOG_BASE: base, GATELOG_CONTROL: control, GATELOG_MODULES: modules, GATELOG_CHROMIUM: chromium } = process.env;
/** Another site, on which every text is hostile. */
const { GATELOG_HOSTILE: hostile } = process.env;
const require = createRequire(join(modules, "page.test.js"));
const { chromium: browserType } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const A = "a0".repeat(16);
const SET_A = "a1".repeat(16);
const UNIT_A = "a4".repeat(16);
const UNIT_B = "b4".repeat(16);
const STATUS = "/t/demo/status";
const { GATELOG_TEST_SEED: seed = "0", GATELOG_AXE: axe = "" } = process.env;
/** axe reads a page for seconds: each day has one of these ways to look at all pages, GATELOG_AXE=all has all of them. */
const ofDay = (ways) => (axe === "all" ? ways : [ways[Number(seed) % ways.length]]);
/** Of the hostile site. */
const HOSTILE_SET = "d1".repeat(16);
const FAILED = "d4".repeat(16);
const RUNNING = "d5".repeat(16);

/** Everything a person can look at. */
const PAGES = [
  "/",
  STATUS,
  "/t/demo/builds",
  "/t/demo/buildsets",
  `/t/demo/buildset/${SET_A}`,
  `/t/demo/buildset/${SET_A}/why/unit`,
  `/t/demo/build/${UNIT_A}`,
  `/t/demo/item/${A}`,
  "/t/demo/config-errors",
  `${STATUS}?at=32`,
  "/what-if?at=32",
  "/t/demo/nothing",
];

let profile;
let browser;
let context;
let page;
let alarms;

before(async () => {
  profile = mkdtempSync(join(tmpdir(), "gatelog-browser-"));
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
  args.push("--disable-component-update", "--disable-sync", "--no-proxy-server");
  browser = await browserType.launch({ executablePath: chromium, headless: true, args });
});
after(async () => {
  await browser?.close();
  rmSync(profile, { recursive: true, force: true });
});

async function open(options = {}) {
  context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(20_000);
  page = await context.newPage();
  alarms = [];
  page.on("dialog", (dialog) => {
    alarms.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("pageerror", (error) => alarms.push(`error: ${error}`));
  page.on("console", (message) => {
    if (/Content Security Policy/i.test(message.text())) alarms.push(message.text());
  });
}
beforeEach(() => open());
afterEach(async () => {
  await context.close();
  assert.deepEqual(alarms, [], "no script of others ran, nothing went wrong, nothing was refused by the policy");
});

/** The newest event; or, told on to an event, that. */
const tell = async (to) => Number(await (await fetch(`${control}/tell?to=${to}`, { method: "POST" })).text());
const write = (build, attempt, over, text) =>
  fetch(`${control}/write?build=${build}&attempt=${attempt}&over=${over}`, { method: "POST", body: text });
const made = (build, attempt, kind) =>
  fetch(`${control}/made?build=${build}&attempt=${attempt}&kind=${kind}`, { method: "POST" });
const go = (path) => page.goto(base + path, { waitUntil: "load" });
const seen = (what) => page.waitForFunction(what);
const text = (selector) => page.locator(selector).first().innerText();

// The story is told on from test to test: to event 32, where A's unit runs.

test("a live page changes without being loaded again", async () => {
  await tell(20);
  await go(STATUS);
  await seen(() => document.getElementById("live")?.dataset.state === "live");
  await page.evaluate(() => (window.stayed = true));
  assert.match(await text("#summary"), /2 items|3 items|1 item/);
  await tell(32);
  await seen(() => document.querySelector("#summary").textContent.includes("1 job running"));
  assert.match(await text(`[data-key="item-${A}"]`), /library/);
  assert.equal(await page.evaluate(() => window.stayed), true, "the page was not loaded anew");
  assert.equal(await page.locator("#time").getAttribute("data-at"), "32");
});

test("the stream is taken up again where it broke, and rests while the page is hidden", async () => {
  const asked = [];
  page.on("request", (request) => {
    if (request.url().includes("/status/stream")) asked.push(new URL(request.url()).search);
  });
  await go(STATUS);
  await seen(() => document.getElementById("live")?.dataset.state === "live");
  assert.deepEqual(asked, ["?brief=1&from=32"]);
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await hide(false);
  await seen(() => document.getElementById("live")?.dataset.state === "live");
  assert.deepEqual(asked, ["?brief=1&from=32", "?brief=1&from=32"]);
});

test("without a stream the page asks from time to time", async () => {
  await page.route("**/status/stream*", (route) => route.fulfill({ status: 503, body: "" }));
  await go(STATUS);
  await seen(() => document.getElementById("live")?.dataset.state === "polling");
});

test("the slider goes to an earlier moment and back", async () => {
  await go(STATUS);
  await page.evaluate(() => (window.stayed = true));
  const slider = page.locator("#at");
  await slider.fill("12");
  await seen(() => document.querySelector("#time").dataset.at === "12");
  assert.match(page.url(), /[?&]at=12$/);
  assert.match(await text("#banner"), /as of event 12/);
  assert.match(await text("#summary"), /1 item/);
  await page.click("#back-to-now");
  await seen(() => document.querySelector("#time").dataset.then === "0");
  assert.doesNotMatch(page.url(), /at=/);
  assert.equal(await page.locator("#banner").count(), 0);
  assert.equal(await page.evaluate(() => window.stayed), true, "no page was loaded anew");
  // To where the tenant was not there yet.
  await slider.fill("0");
  await seen(() => document.querySelector("#time").dataset.at === "0");
  assert.match(await text("main"), /No pipelines yet/);
});

test("every step is there with the keyboard alone", async () => {
  await go(STATUS);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.locator("#at").focus();
  await page.keyboard.press("ArrowLeft");
  await seen(() => document.querySelector("#time").dataset.at === "31");
  await page.keyboard.press("ArrowLeft");
  await seen(() => document.querySelector("#time").dataset.at === "30");
  assert.equal(await page.evaluate(() => document.activeElement.id), "at", "the focus stays");
  await page.locator('a[data-step="on"]').focus();
  await page.keyboard.press("Enter");
  await seen(() => document.querySelector("#time").dataset.at === "31");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.step), "on");

  await go(`/t/demo/buildset/${SET_A}`);
  await page.locator(".graph .node").first().focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(`**/t/demo/build/${UNIT_A}`);
  assert.match(await text("h1"), /unit/);
  await page.locator('a[data-step="item-back"]').focus();
  await page.keyboard.press("Enter");
  await seen(() => document.querySelector("#time").dataset.then === "1");
});

test("everything is there without scripts", async () => {
  await context.close();
  await open({ javaScriptEnabled: false });
  await go("/");
  await page.click("main .tenants a");
  assert.match(await text("h1"), /Status/);
  await page.click(`[data-key="item-${A}"] h4 a`);
  assert.match(await text(".story"), /Enqueued/);
  await page.click(".story .seq >> nth=0");
  assert.match(await text("#banner"), /as of event/);
  await page.locator(".slider .plain-only").click();
  assert.match(page.url(), /at=\d+/);
  await go("/t/demo/builds");
  await page.fill('[name="job_name"]', "unit");
  await page.click(".filters button");
  assert.match(page.url(), /job_name=unit/);
  assert.doesNotMatch(await text("tbody"), /lint/);
});

test("a console is there from its first line and goes on", async () => {
  await write(UNIT_A, 1, 0, "\u001b[32mline one\u001b[0m\nline two\n<img src=x onerror=alert(1)>\n");
  await go(`/t/demo/build/${UNIT_A}`);
  assert.equal(await text("#L1 code"), "line one");
  assert.equal(await page.locator("#L1 .c2").count(), 1);
  assert.match(await text("#L3 code"), /<img/);
  await write(UNIT_A, 1, 0, "line four\npart of ");
  await page.locator("#L4").waitFor();
  await write(UNIT_A, 1, 0, "line five <script>alert(1)</script>\u001b[2J\u202e\n");
  await page.locator("#L5").waitFor();
  assert.equal(await text("#L5 code"), "part of line five <script>alert(1)</script>⟨U+202E⟩");
  await write(UNIT_A, 1, 1, "no newline at the end");
  await page.locator("#L6").waitFor();
  await seen(() => document.getElementById("console-state").textContent.includes("ends here"));
  // A link to a line marks it.
  await go(`/t/demo/build/${UNIT_A}#L2`);
  assert.equal(await page.evaluate(() => document.querySelector(".line:target")?.id), "L2");
});

test("the story ends, and the live page with it", async () => {
  await go(STATUS);
  await seen(() => document.getElementById("live")?.dataset.state === "live");
  await tell(1000);
  await seen(() => document.querySelector("#summary").textContent === "0 items");
  assert.match(await text("[data-key=lately]"), /merge conflict/);
});

for (const [name, options] of ofDay([
  ["light", {}],
  ["dark", { colorScheme: "dark" }],
  ["a phone", { viewport: { width: 360, height: 740 } }],
])) {
  test(`axe finds nothing serious: ${name}`, async () => {
    await context.close();
    await open({ reducedMotion: "reduce", ...options });
    for (const path of PAGES) await accessible(base, path);
  });
}

/** What axe calls serious is not there, and nothing makes the page scroll sideways. */
async function accessible(site, path) {
  await page.goto(site + path, { waitUntil: "load" });
  const found = await new AxeBuilder({ page }).analyze();
  const bad = found.violations
    .filter((violation) => ["serious", "critical"].includes(violation.impact))
    .map((violation) => `${path}: ${violation.id}: ${violation.nodes.map((node) => node.html).join(" | ")}`);
  assert.deepEqual(bad, []);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(wide, 0, `${path} does not scroll sideways`);
}

test("dark is dark", async () => {
  await context.close();
  await open({ colorScheme: "dark" });
  await go(STATUS);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const [red, green, blue] = ground.match(/\d+/g).map(Number);
  assert.ok(red + green + blue < 150, ground);
});

test("hostile text stays text on every page, then and now", async () => {
  for (const path of [...PAGES, `/t/demo/build/${UNIT_B}`, `/t/demo/item/${A}?at=40`]) {
    await go(path);
    const strange = await page.evaluate(() =>
      [...document.querySelectorAll("script, [style], img")].filter(
        (node) => node.hasAttribute("style") || !(node.getAttribute("src") || "").startsWith("/assets/"),
      ).length,
    );
    assert.equal(strange, 0, path);
  }
  await go(`/t/demo/build/${UNIT_B}`);
  assert.match(await text("main"), /<\/script><script>alert\("1"\)/);
});

// ---- consoles ----

test("lines of a gigabyte are seen without hanging the page, wherever they are", async () => {
  await made(UNIT_B, 1, "gigabyte");
  await go(`/t/demo/build/${UNIT_B}`);
  await page.fill("#to-line-number", "5000000");
  await page.press("#to-line-number", "Enter");
  await page.locator("#L5000000.marked").waitFor();
  assert.match(await text("#L5000000 code"), /^line 5000000 said/);
  assert.match(page.url(), /line=5000000#L5000000$/);
  // Up and down from there, far enough that what is left behind is let go.
  for (const to of ["0", "1e9", "1e9", "0", "0", "0", "1e9", "1e9", "1e9", "1e9", "1e9", "1e9", "1e9", "1e9", "1e9"]) {
    const [first, next] = await ends();
    await page.evaluate((to) => (document.getElementById("console").scrollTop = Number(to)), to);
    await page.waitForFunction(
      ([first, next]) => {
        const chunks = document.querySelectorAll("#console .chunk");
        return Number(chunks[0].dataset.first) !== first || Number(chunks[chunks.length - 1].dataset.next) !== next;
      },
      [first, next],
    );
    const numbers = await page.locator("#console .line > a").allTextContents();
    assert.ok(numbers.length <= 3_500, `${numbers.length} lines`);
    numbers.forEach((number, place) => assert.equal(Number(number), Number(numbers[0]) + place, "no gap, nothing twice"));
  }
  await page.locator("#console").focus();
  await page.keyboard.press("End");
  await page.locator("#L10737419").waitFor();
  await seen(() => /ends here/.test(document.getElementById("console-state").textContent));
  await page.keyboard.press("Home");
  await page.locator("#L1").waitFor();
  // The first failure is known by now.
  await page.click("#first-failure");
  await page.locator("#L9000000.marked").waitFor();
});

const ends = () =>
  page.evaluate(() => {
    const chunks = document.querySelectorAll("#console .chunk");
    return [Number(chunks[0].dataset.first), Number(chunks[chunks.length - 1].dataset.next)];
  });

test("a line of a hundred megabytes is cut and its neighbours are seen", async () => {
  await made(UNIT_A, 2, "long-line");
  await go(`/t/demo/build/${UNIT_A}?attempt=2`);
  assert.match(await text("#L2 .cut"), /a line of 104 MB/);
  assert.equal(await text("#L3 code"), "last");
  assert.ok((await page.locator("#L2").innerText()).length < 10_000);
});

test("text is found, led to and marked, and a link to its line leads back", async () => {
  await made(UNIT_B, 1, "gigabyte");
  await go(`/t/demo/build/${UNIT_B}`);
  await page.fill('#find [name="text"]', "LINE 4321 ");
  await page.press('#find [name="text"]', "Enter");
  await page.locator("#L4321.marked").waitFor();
  assert.match(await text("#found mark"), /line 4321/);
  const link = page.url();
  assert.match(link, /line=4321#L4321$/);
  await page.goto("about:blank");
  await page.goto(link);
  await page.locator("#L4321.marked").waitFor();
  assert.ok(await page.locator("#L4321").isVisible());
  // Without scripts too.
  await context.close();
  await open({ javaScriptEnabled: false });
  await page.goto(link);
  assert.ok(await page.locator("#L4321.marked").isVisible());
  await page.fill('#find [name="text"]', "line 99 ");
  await page.click("#find button");
  await page.click(".hits a");
  assert.ok(await page.locator("#L99.marked").isVisible());
});

test("a running console is followed until somebody scrolls, and again on demand", async () => {
  const say = (from, to) =>
    write(RUNNING, 1, 0, Array.from({ length: to - from }, (_, place) => `line ${from + place}\n`).join(""));
  await say(1, 200);
  await page.goto(`${hostile}/t/demo/build/${RUNNING}`);
  await page.locator("#L199").waitFor();
  await seen(() => document.getElementById("follow").getAttribute("aria-pressed") === "true");
  await say(200, 300);
  await page.locator("#L299").waitFor();
  const low = () => {
    const box = document.getElementById("console");
    return box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  };
  await seen(low);
  await page.evaluate(() => (document.getElementById("console").scrollTop = 0));
  await seen(() => document.getElementById("follow").getAttribute("aria-pressed") === "false");
  await say(300, 1500);
  await page.click("#follow");
  await page.locator("#L1499").waitFor();
  await seen(low);
});

test("a console whose worker is away is said to be, and what is stored is shown", async () => {
  await fetch(`${control}/away?build=${FAILED}&attempt=1&stored=kept%0A`, { method: "POST" });
  await page.goto(`${hostile}/t/demo/build/${FAILED}`);
  assert.match(await text(".console-card [role=status]"), /cannot be reached now: .*<img src=x/);
  assert.equal(await text("#L1 code"), "kept");
});

// ---- hostile text ----

for (const [name, options] of [
  ["with scripts", {}],
  ["without scripts", { javaScriptEnabled: false }],
]) {
  test(`nothing that people, projects and workers write runs, leads away or hides: ${name}`, async () => {
    await context.close();
    await open(options);
    const asked = [];
    page.on("request", (request) => asked.push(request.url()));
    await fetch(`${control}/say-hostile`, { method: "POST" });
    const { pages, text: planted } = await (await fetch(`${control}/hostile`)).json();
    for (const path of pages) {
      await page.goto(hostile + path, { waitUntil: "load" });
      assert.equal(new URL(page.url()).origin, hostile, `${path} leads nowhere else`);
      if (!options.javaScriptEnabled && options.javaScriptEnabled !== undefined) continue;
      if (await page.locator("#console .line").count()) await page.locator("#console").press("End");
      // Everything is hovered over and focused that may be: hidden traps are sprung.
      const found = await page.evaluate((planted) => {
        for (const node of document.querySelectorAll("*")) {
          node.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
          if (node.tabIndex >= 0) node.focus();
        }
        const bad = [];
        for (const node of document.querySelectorAll("*")) {
          for (const { name, value } of node.attributes) {
            if (name.startsWith("on") || name === "style" || name === "srcdoc") bad.push(`${node.nodeName} ${name}`);
            if (["href", "src", "action", "formaction"].includes(name) && node.namespaceURI.endsWith("xhtml")) {
              const url = new URL(value, location.href);
              const own = url.origin === location.origin;
              if (!["http:", "https:"].includes(url.protocol)) bad.push(`${node.nodeName} ${value}`);
              if (!own && !(node.nodeName === "A" && /noopener/.test(node.rel))) bad.push(`${node.nodeName} ${value}`);
            }
          }
          if (/^(IFRAME|BASE|OBJECT|EMBED|STYLE)$/.test(node.nodeName)) bad.push(node.nodeName);
        }
        return { bad, pwned: window.pwned, literal: document.body.textContent.includes(planted) };
      }, planted);
      assert.deepEqual(found.bad, [], path);
      assert.equal(found.pwned, undefined, path);
      if (!path.includes("filter=")) assert.ok(found.literal, `${path} shows it as it is`);
    }
    const own = (url) => url.startsWith(hostile) || url.startsWith("about:");
    assert.deepEqual(asked.filter((url) => !own(url)), [], "nothing was asked of anybody else");
  });
}

for (const [name, options] of ofDay([
  ["light", {}],
  ["dark", { colorScheme: "dark" }],
  ["a phone", { viewport: { width: 390, height: 844 } }],
])) {
  test(`axe finds nothing serious among hostile names either: ${name}`, async () => {
    await context.close();
    await open({ reducedMotion: "reduce", ...options });
    const { pages } = await (await fetch(`${control}/hostile`)).json();
    for (const path of [...pages, `/t/demo/build/${FAILED}?text=x`]) await accessible(hostile, path);
  });
}

test("nothing moves for those who asked for that", async () => {
  await context.close();
  await open({ reducedMotion: "reduce" });
  await page.goto(`${hostile}/t/demo/status`);
  const moving = await page.evaluate(() => document.getAnimations().length);
  assert.equal(moving, 0);
});

test("where the focus is can be seen on everything that takes it", async () => {
  for (const path of [`/t/demo/build/${RUNNING}`, "/t/demo/status", "/t/demo/builds", `/t/demo/buildset/${HOSTILE_SET}`]) {
    await page.goto(hostile + path);
    const seen = new Set();
    for (let steps = 0; steps < 80; steps++) {
      await page.keyboard.press("Tab");
      const at = await page.evaluate(() => {
        const node = document.activeElement;
        if (!node || node === document.body) return null;
        const style = getComputedStyle(node);
        const rect = node.querySelector?.("rect");
        const shown = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) ||
          (rect && parseFloat(getComputedStyle(rect).strokeWidth) > 2);
        return { what: node.outerHTML.slice(0, 120), shown };
      });
      if (!at) break;
      assert.ok(at.shown, `${path}: ${at.what}`);
      seen.add(at.what);
    }
    assert.ok(seen.size > 8, `${path}: ${seen.size} things take the focus`);
    assert.ok(seen.size < 80, `${path}: the way through it is not endless`);
  }
});

for (const [name, javaScriptEnabled] of [
  ["with scripts", true],
  ["without scripts", false],
]) {
  test(`what would have been is asked with ticks and told side by side: ${name}`, async () => {
    await context.close();
    await open({ javaScriptEnabled });
    await go("/?at=32");
    await page.click("main a[href^='/what-if']");
    assert.match(page.url(), /\/what-if\?at=32$/);
    await page.check('[name="without"][value="intake/0:32"]');
    await page.click("form.what-if button");
    // The page comes again by itself until there is an answer.
    await page.waitForSelector("#divergence");
    assert.match(await text("#divergence h2"), /Otherwise from gate\/0 event 9 on/);
    assert.match(await text("h1"), /without intake\/0:32/);
    assert.match(await text("#merges .sides > div:first-child"), /Recorded[^]*demo gate <b>a<\/b>/);
    assert.match(await text("#merges .sides > div:last-child"), /Would have been[^]*\+\s*demo gate b/);
    assert.match(await text("#items"), /never came/);
    assert.match(await text("#numbers"), /node-hours\s+2\.00\s+1\.00/);
    if (javaScriptEnabled) await accessible("", page.url());
  });
}

test("a what-if that takes long is cancelled", async () => {
  await go("/what-if");
  await page.fill('[name="change"]', "gate.inputs:7");
  await page.fill('[name="said"]', '{"result": "Failure"}');
  await page.click("form.what-if button");
  await page.waitForSelector("text=is being answered");
  await page.click("text=Cancel");
  await page.waitForSelector("text=It was ended before there was an answer.");
});
