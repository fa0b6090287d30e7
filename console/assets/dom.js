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

export function count(number) { return number === null || number === undefined ? "?" : number.toLocaleString("en-US").replaceAll(",", "\u202f"); }
export function bytes(number) {
  if (number === null || number === undefined) return "?";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let at = 0;
  while (number >= 1000 && at < units.length - 1) { number /= 1000; at++; }
  return `${at && number < 100 ? number.toFixed(1) : Math.round(number)}\u00a0${units[at]}`;
}
export const rate = (number) => (number === null || number === undefined ? "?" : `${bytes(number)}/s`);
export function span(ms) {
  if (ms === null || ms === undefined) return "?";
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)}\u00a0ms`;
  if (s < 90) return `${s < 10 ? s.toFixed(1) : Math.round(s)}\u00a0s`;
  if (s < 5400) return `${Math.round(s / 60)}\u00a0min`;
  return s < 129600 ? `${Math.round(s / 3600)}\u00a0h` : `${Math.round(s / 86400)}\u00a0d`;
}
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const moment = (ms) => `${new Date(ms).toLocaleDateString("en-CA")} ${clock(ms)}`;

// A link inside the console, a fact for a `.facts` list, and a table with a caption for screen readers.
export const link = (href, ...children) => h("a", { href }, ...children);
export const fact = (name, node) => h("div", null, h("dt", null, name), node.tagName === "DD" ? node : h("dd", null, node));
export const mark = (kind, words) => h("span", { class: `pill ${kind}` }, words);
export function table(caption, heads, body = h("tbody"), kind = "") {
  const cells = heads.map((each) => (typeof each === "string" ? h("th", { scope: "col" }, each) : each));
  return h("div", { class: `scroll ${kind}`, tabindex: "0", role: "region", "aria-label": caption },
    h("table", { class: "stack" }, h("caption", { class: "aside" }, caption), h("thead", null, h("tr", null, cells)), body));
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
