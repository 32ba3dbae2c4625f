// gatelog's page as people use it: in Chromium, against a site whose story the test tells.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

const { GATELOG_BASE: base, GATELOG_CONTROL: control, GATELOG_MODULES: modules, GATELOG_CHROMIUM: chromium } = process.env;
const require = createRequire(join(modules, "page.test.js"));
const { chromium: browserType } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");

const A = "a0".repeat(16);
const SET_A = "a1".repeat(16);
const UNIT_A = "a4".repeat(16);
const UNIT_B = "b4".repeat(16);
const STATUS = "/t/demo/status";

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
  assert.deepEqual(asked, ["?from=32"]);
  const hide = (hidden) =>
    page.evaluate((hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await hide(true);
  await hide(false);
  await seen(() => document.getElementById("live")?.dataset.state === "live");
  assert.deepEqual(asked, ["?from=32", "?from=32"]);
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

for (const [name, options] of [
  ["light", {}],
  ["dark", { colorScheme: "dark" }],
  ["a phone", { viewport: { width: 360, height: 740 } }],
]) {
  test(`axe finds nothing serious: ${name}`, async () => {
    await context.close();
    await open({ reducedMotion: "reduce", ...options });
    for (const path of PAGES) {
      await go(path);
      const found = await new AxeBuilder({ page }).analyze();
      const bad = found.violations
        .filter((violation) => ["serious", "critical"].includes(violation.impact))
        .map((violation) => `${path}: ${violation.id}: ${violation.nodes.map((node) => node.html).join(" | ")}`);
      assert.deepEqual(bad, []);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wide, 0, `${path} does not scroll sideways`);
    }
  });
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

// Last: what it writes would make every later look at that build a long one.
test("a console of many lines does not hang the page", async () => {
  await write(UNIT_A, 2, 1, "x".repeat(90).concat("\n").repeat(70_000));
  await go(`/t/demo/build/${UNIT_A}?attempt=2`);
  await seen(() => document.querySelector("#console-state a") !== null);
  const lines = await page.locator(".line").count();
  assert.ok(lines >= 50_000 && lines < 60_000, `${lines} lines`);
  const next = await page.locator("#console-state a").getAttribute("href");
  await go(next);
  await seen(() => document.getElementById("console-state").textContent.includes("ends here: 70000 lines"));
  assert.equal(await page.locator("#L70000").count(), 1);
});
