// The labelling page. Text from the data reaches the page only as textContent and attribute values, never as markup.
"use strict";

const $ = id => document.getElementById(id);
const NONE = "none of these";
const CLASS_KEYS = "123456789qwertyiopadfghjklzxcvbm"; // n, s, u and 0 have other meanings
const VIEWS = ["label", "answers", "suspects", "strangers", "export"];
const VERDICTS = {
  start: () => "Every fourth item will be a spot check, drawn at random. They tell how good the answers are.",
  "go on": state => `Go on: the lower limit is below the target of ${percent(state.target)}.`
    + (state.changed === null ? "" : ` Your last 20 answers changed ${sure(state.changed)} of the model's.`),
  stable: () => "Your last 20 answers changed less than 1 % of the model's. More will change little.",
  reached: state => `Enough: even the lower limit is at the target of ${percent(state.target)}.`,
  done: () => "Every item is decided.",
};
const EXPORTS = [
  ["table", "Table", "A CSV file with all items: your labels, and the model's answers for the rest.", "Write the table"],
  ["folders", "Folders", "Copies of the images, sorted by class. What the model is less than 90 % sure of goes into “to check”.", "Sort the images"],
  ["model", "Model", "A file for polyshot classify --model, and for Python.", "Save the model"],
];

let state = null;      // what the server said last
let shown = null;      // the item on the card
let opened = false;    // whether the person chose it from a list
let pending = 0;       // changes that the server has not confirmed
let work = Promise.resolve(); // changes go one after the other
let page = { list: "unsure", only: "", items: [], total: 0 };

// ---- small helpers

function make(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, part] of Object.entries(value)) node.style.setProperty(key, part);
    else if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null));
  return node;
}
function draw(tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}
const percent = p => `${Math.round(100 * p)} %`;
const sure = p => (p > 0.995 && p < 1 ? "> 99 %" : p < 0.005 ? "< 1 %" : percent(p));
const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
const hue = name => String(((state.classes.findIndex(c => c.name === name) + 1) * 137.5 + 110) % 360);
const dot = name => make("span", { className: name === NONE ? "dot-of grey" : "dot-of", style: { "--hue": hue(name) } });
const isImage = () => state.kind === "images";
const typing = () => ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
const view = () => VIEWS.find(name => !$(name).hidden);

// ---- talking to the server

async function ask(path, body) {
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const type = answer.headers.get("content-type") || "";
  const content = type.startsWith("application/json") ? await answer.json() : { error: await answer.text() };
  if (!answer.ok) throw Object.assign(new Error(content.error), { status: answer.status });
  return content;
}
function warn(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}
function explain(error) {
  if (error.status) return warn(error.message);
  $("status").className = "lost";
  $("status").textContent = "no connection";
  warn("The server does not answer, so nothing can be saved now. All labels before this one are safe. "
    + "Start polyshot label again and open the address that it shows.");
}
function change(path, body) {
  pending += 1;
  showStatus();
  work = work.then(async () => {
    try {
      take(await ask(path, { ...body, seen: state.version }));
      warn("");
      return true;
    } catch (error) {
      if (error.status === 409) await refresh().catch(explain);
      explain(error);
      return false;
    } finally {
      pending -= 1;
      if (!pending && $("status").className !== "lost") {
        showStatus();
        catchUp();
      }
    }
  });
  return work;
}
async function refresh() {
  take(await ask("state"));
}
let heard = [0, -1, false]; // the newest version, the one that is learned, and whether it is learned completely
function catchUp() {
  const [version, learned, complete] = heard;
  const old = !state || version > state.version || learned > state.learned
    || (complete && version === state.version && !state.complete);
  if (old && !pending) refresh().catch(explain);
}
let stream = null;
function follow() {
  if (document.hidden || stream) return;
  stream = new EventSource("changes");
  stream.onmessage = event => {
    if ($("status").className === "lost") warn("");
    showStatus();
    heard = JSON.parse(event.data);
    catchUp();
  };
  stream.onerror = () => explain({});
}
function unfollow() {
  if (stream) stream.close();
  stream = null;
}

// ---- what holds now

function take(next) {
  if (state && (next.version < state.version || next.learned < state.learned)) return; // overtaken by a newer answer
  const learned = !state || next.learned !== state.learned;
  state = next;
  if (state.problem) warn(state.problem);
  keepCard(learned);
  showAll();
}
function keepCard(learned) {
  if (pending > 1) return; // the person is ahead of the server
  const fresh = shown && state.queue.find(item => item.row === shown.row);
  if (opened && shown) {
    ask(`items/${shown.row}`).then(item => { if (shown && shown.row === item.row) show(item, true); }).catch(explain);
  } else if (fresh) {
    show(fresh, false);
  } else if (shown && learned && !decidedHere.has(shown.row)) { // still open, but no longer among the next ones?
    const row = shown.row;
    ask(`items/${row}`).then(item => {
      if (shown && shown.row === row && !opened) show(item.decision ? state.queue[0] || null : item, false);
    }).catch(explain);
  } else if (!shown) {
    show(state.queue[0] || null, false);
  }
}
const decidedHere = new Set(); // rows whose decision is under way

function show(item, fromList) {
  const same = shown && item && shown.row === item.row;
  shown = item;
  opened = fromList;
  if (!same) drawCard();
  else drawFooter();
  drawClasses();
  for (const next of state.queue.slice(0, 3)) if (isImage()) new Image().src = picture(next, "large");
}
async function decide(kind, label = null) {
  if (!shown) return;
  const item = shown;
  decidedHere.add(item.row);
  const next = state.queue.find(other => !decidedHere.has(other.row));
  show(next || null, false);
  if (!next) shown = null;
  const done = await change("decide", { rows: [item.row], kind, label });
  decidedHere.delete(item.row);
  if (!done) show(item, opened);
  else if (!shown) show(state.queue[0] || null, false);
}
const accept = name => (name === NONE ? decide("none") : decide("class", name));
async function undo() {
  if (!state.last) return;
  const last = state.last;
  if (await change("undo", {})) {
    if (last.n === 1 && last.row !== null) open(last.row);
  }
}
async function open(row) {
  choose("label");
  try {
    show(await ask(`items/${row}`), true);
  } catch (error) {
    explain(error);
  }
}

// ---- the card

const picture = (item, size) => `images/${item.row}/${size}?${item.key}`; // the key: row 0 of other data is another image

function drawCard() {
  const card = $("card");
  card.classList.remove("arrives");
  void card.offsetWidth; // starts the animation again
  card.classList.add("arrives");
  if (!shown) {
    card.replaceChildren(make("p", { className: "end" }, make("strong", {}, "Nothing is left to label."),
      "Look at the suspects, or export what you have."));
    return;
  }
  const content = isImage()
    ? make("img", { alt: shown.name, src: picture(shown, "large"), onload: sharpen })
    : make("blockquote", { className: shown.text.length > 400 ? "long" : "" }, shown.text.trim());
  card.replaceChildren(content, make("footer", {}));
  drawFooter();
}
function sharpen(event) {
  event.target.classList.toggle("tiny", event.target.naturalWidth < 128);
}
function drawFooter() {
  const footer = $("card").querySelector("footer");
  if (!shown || !footer) return;
  const said = shown.decision && { class: `labelled ${shown.decision.label}`, none: "none of these", skip: "skipped" }[shown.decision.kind];
  footer.replaceChildren(make("span", {}, shown.name), said ? make("span", { className: "said" }, said) : "",
    shown.check ? make("span", { className: "check", title: "Drawn at random. The model's answer is hidden until you have given yours." }, "spot check") : "");
}
function drawClasses() {
  const guess = new Map(shown ? shown.guess : []);
  const best = shown && shown.guess.length ? shown.guess[0][0] : null;
  const chosen = shown && shown.decision ? shown.decision.label : null;
  state.classes.forEach(({ name }, place) => {
    const button = buttons.get(name) || makeButton(name);
    const [key, , share] = button.children;
    button.className = `class${name === best ? " best" : ""}${name === chosen ? " chosen" : ""}`;
    button.disabled = !shown;
    button.style.setProperty("--hue", hue(name));
    button.style.setProperty("--p", String(guess.get(name) ?? 0));
    key.textContent = (CLASS_KEYS[place] || "").toUpperCase();
    key.hidden = place >= CLASS_KEYS.length;
    share.textContent = guess.has(name) ? sure(guess.get(name)) : "";
    if ($("classes").children[place] !== button) $("classes").insertBefore(button, $("classes").children[place] || null);
  });
  while ($("classes").children.length > state.classes.length) $("classes").lastChild.remove();
  $("class-names").replaceChildren(...state.classes.map(({ name }) => make("option", { value: name })));
  $("class-name").placeholder = state.classes.length ? "New class" : "What is this? Name its class";
  $("none").style.setProperty("--p", String(guess.get(NONE) ?? 0));
  $("none").classList.toggle("best", best === NONE);
  $("none").classList.toggle("chosen", Boolean(shown && shown.decision && shown.decision.kind === "none"));
  for (const id of ["none", "skip", "name-it"]) $(id).disabled = !shown;
}

const buttons = new Map(); // class to button; one that is pressed while an answer arrives must not go away
function makeButton(name) {
  const button = make("button", { title: name, onclick: () => decide("class", name) }, make("kbd"),
    make("span", { className: "title" }, name), make("span", { className: "p" }));
  buttons.set(name, button);
  return button;
}

// ---- the panels

function showStatus() {
  const busy = pending || (state && state.learned < state.version);
  $("status").className = busy ? "busy" : "";
  $("status").textContent = pending ? "saving" : busy ? "learning" : "saved";
}
function showAll() {
  showStatus();
  $("name").textContent = state.name;
  document.title = `${state.name}: polyshot label`;
  const last = state.last;
  $("undo").disabled = !last;
  const word = last && { class: last.label, none: "none of these", skip: "skip" }[last.kind];
  $("undo").replaceChildren(last ? `Undo ${last.n > 1 ? `${last.n} × ` : ""}${word} ` : "Undo ", make("kbd", {}, "U"));
  for (const [id, n] of [["suspects", state.suspects.length], ["strangers", state.strangers.flat().length]]) {
    const badge = $(`tab-${id}`).querySelector("b");
    badge.textContent = n;
    badge.hidden = !n;
  }
  drawAccuracy();
  drawProgress();
  if (!$("class-list").contains(document.activeElement)) drawClassList();
  drawClasses();
  drawSuspects();
  drawStrangers();
  if (view() === "answers") loadAnswers(true);
}
function drawAccuracy() {
  const now = state.accuracy.at(-1);
  $("accuracy").replaceChildren(now ? percent(now.accuracy) : "—",
    make("small", {}, now ? `${Math.round(100 * now.low)} to ${percent(now.high)}, from ${count(now.n_checks, "spot check")}` : "not known yet"));
  $("brief").textContent = now
    ? `${count(state.n.class, "label")} · expected accuracy ${percent(now.accuracy)} (${Math.round(100 * now.low)} to ${percent(now.high)})`
    : `${count(state.n.class, "label")} · ${state.n.open.toLocaleString("en")} open`;
  $("verdict").className = state.verdict.replace(" ", "-");
  $("verdict").textContent = VERDICTS[state.verdict](state);
  $("chart").replaceChildren(...(state.accuracy.length > 1 ? [accuracyChart()] : []));
}
function accuracyChart() {
  const [W, H, left, right, top, bottom] = [260, 120, 34, 4, 6, 18];
  const points = state.accuracy, first = points[0].n_decided, last = points.at(-1).n_decided;
  const x = n => left + (W - left - right) * (n - first) / Math.max(1, last - first);
  const y = p => top + (H - top - bottom) * (1 - p);
  const path = get => points.map(point => `${x(point.n_decided).toFixed(1)},${y(get(point)).toFixed(1)}`);
  const chart = draw("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  chart.append(draw("title", {}, `Expected accuracy after ${first} to ${last} decisions, with its 90 % interval`));
  for (const p of [0, 0.5, 1]) {
    chart.append(draw("line", { class: "grid-line", x1: left, x2: W - right, y1: y(p), y2: y(p) }),
      draw("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end" }, percent(p)));
  }
  chart.append(
    draw("polygon", { class: "band", points: [...path(p => p.high), ...path(p => p.low).reverse()].join(" ") }),
    draw("line", { class: "target", x1: left, x2: W - right, y1: y(state.target), y2: y(state.target) }),
    draw("polyline", { class: "line", points: path(p => p.accuracy).join(" ") }),
    draw("circle", { class: "dot", cx: x(last), cy: y(points.at(-1).accuracy), r: 3.5 }),
    draw("text", { x: left, y: H - 3 }, String(first)),
    draw("text", { x: W - right, y: H - 3, "text-anchor": "end" }, `${last} decided`));
  return chart;
}
function drawProgress() {
  const { n } = state;
  const rest = [n.none ? `${n.none.toLocaleString("en")} none of these` : "", n.skip ? `${n.skip.toLocaleString("en")} skipped` : ""];
  $("counts").replaceChildren(make("b", {}, n.class.toLocaleString("en")), ` labelled of ${n.all.toLocaleString("en")}`,
    rest.some(Boolean) ? `, ${rest.filter(Boolean).join(", ")}` : "");
  const bins = state.confidence, most = Math.max(1, ...bins), total = bins.reduce((a, b) => a + b, 0);
  if (!total) return $("confidence").replaceChildren();
  const chart = draw("svg", { viewBox: "0 0 260 74", role: "img" });
  chart.append(draw("title", {}, `Confidence of the ${total} answers`));
  bins.forEach((k, bin) => chart.append(draw("rect", {
    class: "bar", x: 26 * bin + 1.5, width: 23, rx: 2, y: 56 - 50 * k / most, height: Math.max(k ? 1.5 : 0, 50 * k / most),
  })));
  chart.append(draw("line", { class: "grid-line", x1: 0, x2: 260, y1: 56.5, y2: 56.5 }),
    draw("text", { x: 0, y: 70 }, "unsure"), draw("text", { x: 260, y: 70, "text-anchor": "end" }, "sure"),
    draw("text", { x: 130, y: 70, "text-anchor": "middle" }, `${percent(bins[9] / total)} above 90 %`));
  return $("confidence").replaceChildren(chart);
}
function drawClassList() {
  $("class-panel").hidden = !state.classes.length;
  $("class-list").replaceChildren(...state.classes.map(({ name, n, predicted }) => {
    const line = make("li", {}, dot(name), make("span", { className: "title", title: name }, name),
      make("span", { className: "n", title: "labelled by you, and predicted" }, `${n.toLocaleString("en")} + ${predicted.toLocaleString("en")}`));
    line.append(make("button", { title: `Rename ${name}, or merge it with another class`, onclick: () => rename(line, name) }, "✎"));
    return line;
  }));
}
function rename(line, old) {
  const input = make("input", { value: old, maxLength: 100, "aria-label": `New name of ${old}` });
  const finish = () => drawClassList();
  input.addEventListener("keydown", event => {
    event.stopPropagation();
    const name = input.value.trim();
    if (event.key === "Escape") input.blur();
    if (event.key !== "Enter") return;
    input.blur();
    if (name && name !== old) change("rename", { old, new: name });
  });
  input.addEventListener("blur", finish);
  line.replaceChildren(dot(old), input);
  input.select();
}

// ---- the other views

function content(item) {
  return isImage()
    ? make("img", { alt: item.name, loading: "lazy", src: picture(item, "small") })
    : make("span", { className: "text" }, item.text.trim());
}
function what(name, right) {
  return make("span", { className: "what" }, dot(name), make("span", {}, name), make("span", { className: "p" }, right));
}
function tile(item) {
  const said = item.decision;
  const label = said ? what({ class: said.label, none: NONE, skip: "skipped" }[said.kind], "yours") : item.guess.length ? what(item.guess[0][0], sure(item.guess[0][1])) : null;
  return make("button", { className: "tile", title: item.name, onclick: () => open(item.row) }, content(item), label);
}
const empty = text => make("p", { className: "empty" }, text);

async function loadAnswers(again) {
  const only = $("only").value;
  $("only").replaceChildren(make("option", { value: "" }, "every class"),
    ...[...state.classes.map(({ name }) => name), NONE].map(name => make("option", { value: name }, name)));
  $("only").value = only === NONE || state.classes.some(({ name }) => name === only) ? only : "";
  page = { list: $("list").value, only: $("only").value, items: again ? [] : page.items };
  const query = new URLSearchParams({ list: page.list, offset: page.items.length, ...(page.only && { class: page.only }) });
  const mine = page;
  try {
    const part = await ask(`items?${query}`);
    if (mine !== page) return; // another request came after this one
    page.items.push(...part.items);
    $("total").textContent = count(part.total, "item");
    $("found").replaceChildren(...(page.items.length ? page.items.map(tile) : [empty("No items here.")]));
    $("more").hidden = page.items.length >= part.total;
  } catch (error) {
    explain(error);
  }
}
const drawn = {}; // what each list was last made of; a list that has not changed stays, with what is chosen in it
function unchanged(name, content) {
  const now = JSON.stringify(content);
  const same = drawn[name] === now;
  drawn[name] = now;
  return same;
}
function drawSuspects() {
  if (unchanged("suspects", state.suspects)) return;
  $("suspect-list").replaceChildren(...state.suspects.map(item => make("article", { className: "tile" }, content(item),
    what(item.decision.label ?? NONE, `fits: ${sure(item.p)}`),
    make("div", { className: "row" },
      make("button", { onclick: () => change("decide", { rows: [item.row], ...item.decision }) }, "It is right"),
      make("button", { onclick: () => open(item.row) }, "Change")))));
  if (!state.suspects.length) $("suspect-list").append(empty("No label looks wrong."));
}
function drawStrangers() {
  if (unchanged("strangers", [state.strangers, state.n.class + state.n.none < 20])) return;
  const groups = state.strangers.filter(group => group.length);
  $("groups").replaceChildren(...groups.map(drawGroup));
  if (!groups.length) {
    $("groups").append(empty(state.n.class + state.n.none < 20
      ? "Strangers can be told apart from 20 labels on."
      : "Nothing is unlike what you have labelled."));
  }
}
function drawGroup(group) {
  const chosen = new Set(group.map(item => item.row));
  const input = make("input", { maxLength: 100, placeholder: "Name of the class", "aria-label": "Class of the group" });
  input.setAttribute("list", "class-names");
  const go = make("button", { className: "go", type: "submit" });
  const tell = () => {
    go.textContent = `Label ${chosen.size}`;
    go.disabled = none.disabled = !chosen.size;
  };
  const send = (kind, label) => change("decide", { rows: [...chosen], kind, label });
  const none = make("button", { type: "button", onclick: () => send("none", null) }, "None of these");
  const members = group.map(item => make("button", {
    className: "member", "aria-pressed": "true", title: item.name,
    onclick: event => {
      if (!chosen.delete(item.row)) chosen.add(item.row);
      event.currentTarget.setAttribute("aria-pressed", String(chosen.has(item.row)));
      tell();
    },
  }, content(item)));
  const form = make("form", {
    onsubmit: event => {
      event.preventDefault();
      const name = input.value.trim();
      if (!name) return input.focus();
      document.activeElement.blur();
      return send("class", name);
    },
  }, input, go, none);
  tell();
  return make("section", { className: `group${isImage() ? "" : " texts"}` },
    make("div", { className: "members" }, ...members), form);
}
function drawExports() {
  const kinds = EXPORTS.filter(([name]) => name !== "folders" || isImage());
  $("exports").replaceChildren(...kinds.map(([name, title, text, action]) => {
    const result = make("p", { role: "status" });
    const button = make("button", {
      className: "go", id: `export-${name}`,
      onclick: async () => {
        button.disabled = true;
        result.className = "";
        result.textContent = "Writing …";
        try {
          const { path, summary } = await ask("export", { what: name });
          result.className = "done";
          result.replaceChildren(`${summary}: `, make("code", {}, path));
        } catch (error) {
          result.className = "failed";
          result.textContent = error.status ? error.message : "The server does not answer.";
        }
        button.disabled = false;
      },
    }, action);
    return make("article", { className: "tile" }, make("h2", {}, title), make("p", {}, text), button, result);
  }));
}

// ---- views, keys and the start

function choose(name) {
  for (const other of VIEWS) {
    $(other).hidden = other !== name;
    $(`tab-${other}`).setAttribute("aria-selected", String(other === name));
  }
  if (name === "answers") loadAnswers(true);
  if (name === "export") drawExports();
}
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "z" && !typing()) { event.preventDefault(); undo(); }
    return;
  }
  if (event.key === "Escape") document.activeElement.blur();
  if (typing() || view() !== "label" || !state) return;
  const key = event.key.toLowerCase(), place = CLASS_KEYS.indexOf(key);
  const onButton = document.activeElement.tagName === "BUTTON" && ["enter", " "].includes(key);
  if (onButton) return;
  const actions = { 0: () => decide("none"), s: () => decide("skip"), u: undo, n: () => $("class-name").focus() };
  if (key === "enter" && shown && shown.guess.length) actions.enter = () => accept(shown.guess[0][0]);
  if (key.length === 1 && place >= 0 && place < state.classes.length) actions[key] = () => decide("class", state.classes[place].name);
  if (!actions[key]) return;
  event.preventDefault();
  actions[key]();
}

history.replaceState(null, "", "/"); // the token leaves the address bar; the cookie has it
for (const name of VIEWS) $(`tab-${name}`).addEventListener("click", () => choose(name));
$("none").addEventListener("click", () => decide("none"));
$("skip").addEventListener("click", () => decide("skip"));
$("undo").addEventListener("click", undo);
$("list").addEventListener("change", () => loadAnswers(true));
$("only").addEventListener("change", () => loadAnswers(true));
$("more").addEventListener("click", () => loadAnswers(false));
$("naming").addEventListener("submit", event => {
  event.preventDefault();
  const name = $("class-name").value.trim();
  $("class-name").value = "";
  $("class-name").blur();
  if (name) decide("class", name);
});
document.addEventListener("keydown", press);
document.addEventListener("visibilitychange", () => (document.hidden ? unfollow() : (follow(), refresh().catch(explain))));
refresh().then(() => {
  if (!state.classes.length) $("class-name").focus();
  follow();
}).catch(explain);
