// Elements, keyed updates, and numbers for people. Nothing here takes HTML as text: names from a cluster stay text.
const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "open" || name === "disabled" || name === "hidden") node[name] = value;
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// Set text or an attribute only when it differs, so that nothing is drawn again without need.
export function text(node, value) { if (node.textContent !== String(value)) node.textContent = value; return node; }
export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) node.removeAttribute(name);
    else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
  }
  return node;
}

// Make the children of `parent` those of `items`, by key: nodes stay, so focus and scroll position stay too.
export function keyed(parent, items, keyOf, make, update = () => {}) {
  const known = parent.keyed ??= new Map(), wanted = new Set(items.map(keyOf));
  for (const [key, node] of known) if (!wanted.has(key)) { node.remove(); known.delete(key); }
  let before = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    let node = known.get(key);
    if (!node) known.set(key, node = make(item));
    update(node, item);
    if (node === before) before = before.nextSibling;
    else parent.insertBefore(node, before);
  }
}

const isKnown = (value) => value !== null && value !== undefined;
export const count = (number) => (isKnown(number) ? number.toLocaleString("en-US").replaceAll(",", "\u202f") : "?");
export const plural = (number, noun, more = `${noun}s`) => `${count(number)} ${number === 1 ? noun : more}`;
// The same units as the command line has, in common/sizes.py.
export function bytes(number) {
  if (!isKnown(number) || number < 0) return "?";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (number >= 1024 && at < units.length - 1) { number /= 1024; at++; }
  return `${number.toFixed(at ? 1 : 0)}\u00a0${units[at]}`;
}
export const sum = (numbers) => numbers.reduce((total, each) => total + (each ?? 0), 0);
export const lastOf = (directory) => directory?.split("/").slice(-2).join("/") ?? "?";
export const rate = (number) => (isKnown(number) ? `${bytes(number)}/s` : "?");
export function span(ms) {
  if (!isKnown(ms)) return "?";
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)}\u00a0ms`;
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)}\u00a0s`;
  if (s < 5400) return `${Math.round(s / 60)}\u00a0min`;
  return s < 129600 ? `${Math.round(s / 3600)}\u00a0h` : `${Math.round(s / 86400)}\u00a0d`;
}
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const moment = (ms) => `${new Date(ms).toLocaleDateString("en-CA")} ${clock(ms)}`;

// Parts of pages: a link inside the console, a section with its heading, a fact of a `.facts` list, and words in a colour.
export const path = (...parts) => `/${parts.map(encodeURIComponent).join("/")}`;
export const link = (href, ...children) => h("a", { href }, ...children);
export const partitionLink = (topic, index) => link(path("topics", topic, index), `${topic}-${index}`);
export const brokerLink = (id) => link(path("brokers", id), `broker ${id}`);
export const button = (words, onclick, kind = null, attributes = {}) => h("button", { onclick, class: kind, ...attributes }, words);
export const section = (title, ...children) => h("section", null, h("h2", null, title), ...children);
export const fact = (name, node) => h("div", null, h("dt", null, name), node.tagName === "DD" ? node : h("dd", null, node));
export const mark = (kind, words) => h("span", { class: `pill ${kind}` }, words);
export const alert = () => h("p", { class: "bad", role: "alert" });

// A list of facts, "…" at first: [its node, the places of the values by name]. `words(name)` is what a reader sees.
export function factList(names, words = (name) => name) {
  const places = Object.fromEntries(names.map((name) => [name, h("dd", { class: / id$/.test(name) && "id" }, "…")]));
  return [h("dl", { class: "facts" }, names.map((name) => fact(words(name), places[name]))), places];
}

// A table with a caption for screen readers. Columns are names: "#size" is one of numbers, "~reason" one that wraps.
const ROW = { "data-row": true, tabindex: "-1" }, KINDS = { "#": "n", "~": "wrap" };
const nameOf = (column) => column.replace(/^[#~]/, "");
export function table(caption, columns, body = h("tbody"), kind = "") {
  const heads = columns.map((each) => (typeof each === "string" ? h("th", { scope: "col", class: each[0] === "#" && "n" }, nameOf(each)) : each));
  return h("div", { class: `scroll ${kind}`, tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "stack" }, h("caption", { class: "aside" }, caption), h("thead", null, h("tr", null, heads)), body));
}
export const row = (columns, contents, attributes = null) => h("tr", attributes, columns.map((each, at) =>
  h(at ? "td" : "th", { ...(at ? { "data-of": nameOf(each) } : { scope: "row" }), class: KINDS[each[0]] }, contents[at])));
// A table of which rows stay by key. `make(item)` returns what the cells hold at first; `fill(item, cells, row)` may change
// cells, and return words for them, where a hole leaves a cell as it is. Keys walk rows that have `attributes` of a `data-row`.
export function grid(caption, columns, keyOf, make, fill = () => [], kind = "", attributes = ROW) {
  const body = h("tbody");
  const filled = (tr, item) => fill(item, [...tr.children], tr)?.forEach((words, at) => text(tr.children[at], words));
  const update = (items) => keyed(body, items, keyOf, (item) => row(columns, make(item), attributes), filled);
  return { node: table(caption, columns, body, kind), body, update };
}

// Return what shows, in place of the page, that there is no such thing, with a link to a list; null shows the page again.
export function absence(view, list, words) {
  const nodes = [...view.children];
  let known = null;
  return (what) => {
    if (what !== known) view.replaceChildren(...(what ? [section(`There is no ${what}`, h("p", null, link(list, words)))] : nodes));
    known = what;
  };
}

// A button that shows more of a long list, `size` rows at a time; `of(rows)` returns those that are shown.
export function cut(size, draw) {
  let shown = size;
  const node = button("", () => { shown += size; draw(); }, null, { hidden: true });
  return { node, get shown() { return shown; }, reset() { shown = size; }, of(rows, total = rows.length) {
    node.hidden = total <= shown;
    text(node, `Show more: ${count(total - shown)} of ${count(total)} are not shown`);
    return rows.slice(0, shown);
  } };
}

// Offer values, or [value, words], in a list, also the one that is chosen.
export function offer(node, options, chosen) {
  const pairs = options.map((each) => (Array.isArray(each) ? each : [each, each]).map(String));
  if (!pairs.some(([value]) => value === chosen)) pairs.push([chosen, chosen]);
  keyed(node, pairs, ([value]) => value, ([value, words]) => h("option", { value }, words));
  node.value = chosen;
}
// A field that stays in the URL as `name`: a list if it has `options`, a box if they are true, otherwise a text. `changed()` is
// called after a change; `node.offer(options)` replaces the options.
export function field(app, name, words, changed, options = null, attributes = {}) {
  const isBox = options === true, value = () => app.query.get(name) ?? "";
  const node = options && !isBox ? h("select", attributes) : h("input", { type: isBox ? "checkbox" : "search", ...(isBox ? { checked: Boolean(value()) } : { value: value() }), ...attributes });
  node.addEventListener(options ? "change" : "input", () => { app.setQuery({ [name]: isBox ? (node.checked ? "1" : null) : node.value.trim() }); changed(); });
  const label = h("label", { class: isBox && "tick" }, isBox ? [node, ` ${words}`] : [words, node]);
  label.offer = (given) => offer(node, given, value());
  if (options && !isBox) label.offer(options);
  return label;
}

// Make `node` a bar of parts, [[share of the whole, class], …], which says `label`.
export function bar(node, label, parts) {
  set(node, { role: "img", "aria-label": label, title: label }).classList.add("bar");
  parts.forEach(([share, kind], at) => { const part = node.children[at] ?? node.appendChild(h("i", { class: kind })); part.style.width = `${100 * Math.max(0, Math.min(1, share))}%`; });
  return node;
}
// Call `ask` now, and every `ms` while the page is visible. Return what ends it.
export function polled(ms, ask) {
  const run = () => { if (!document.hidden) ask(); }, timer = setInterval(run, ms);
  document.addEventListener("visibilitychange", run);
  run();
  return () => { clearInterval(timer); document.removeEventListener("visibilitychange", run); };
}
