// Lanes: spans of time in rows with names, for finished runs and for live pages. Sets one global, `kraftlabLanes`: pages from disk
// load this as a script, the console imports it. `drawLanes` keeps the nodes of the last call and changes their attributes, so
// that a page may call it for every new state and every move of the window of time.
//
// A lane is {label, spans}, a span {begin_us, end_us, about, text, short}; end_us null: it goes on. The spans of a lane do not
// overlap and are sorted by time. Options, for all functions alike:
//   from, to     the window of time in µs
//   left, width  pixels of the names, and of the window to the right of them
//   height       pixels of a span
//   end          the end in µs of spans that go on
//   look         span → {fill, opacity = 1, hatched = false, elected = false, pale = false, words = [span.short]}. elected: ▲ at
//                the begin. pale: words in the colour of the page's text. `words` are the texts that may stand in the span, the
//                best first: the first that fits does, otherwise the last stands beside it if there is room.
//   times        [[µs, text], …], moments below the lanes with a line through them; none by default
"use strict";
globalThis.kraftlabLanes = (() => {
  const GAP = 5, TOP = 4;
  const kept = new WeakMap();
  let hatches = 0;

  const put = (node, attributes) => {
    for (const [name, value] of Object.entries(attributes)) {
      const text = typeof value === "number" ? String(Math.round(value * 100) / 100) : value;
      if (node.getAttribute(name) !== text) node.setAttribute(name, text);
    }
    return node;
  };
  const write = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const show = (node, isShown) => { if (isShown) node.removeAttribute("display"); else put(node, { display: "none" }); return isShown; };
  const make = (name, attributes = {}, ...children) => {
    const node = put(document.createElementNS("http://www.w3.org/2000/svg", name), attributes);
    node.append(...children);
    return node;
  };
  // One child per item, the same node for the same key as in the last call.
  const keyed = (parent, items, keyOf, begin, update) => {
    const before = kept.get(parent) ?? new Map(), now = new Map();
    for (const item of items) {
      let key = String(keyOf(item));
      while (now.has(key)) key += "'";
      now.set(key, before.get(key) ?? begin());
    }
    kept.set(parent, now);
    for (const [key, node] of before) if (!now.has(key)) node.remove();
    [...now.values()].forEach((node, place) => {
      if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
      update(node, items[place], place);
    });
  };

  const heightOf = (lanes, { height }) => lanes.length * (height + GAP) + TOP;
  const xOf = (us, { from, to, left, width }) => left + ((us - from) / (to - from)) * width;
  const endOf = (span, { end }) => (span.end_us === null ? end : span.end_us);

  const newSpan = () => make("g", {}, ...["rect", "rect", "rect", "path", "path", "text"].map((name) => make(name)));
  const drawSpan = (group, span, y, until, hatch, options) => {
    const { left, width: room, height, look } = options, [ground, body, stripes, onward, mark, text] = group.children;
    const { fill, opacity = 1, hatched = false, elected = false, pale = false, words = [span.short] } = look(span);
    const begin = xOf(span.begin_us, options), x = Math.min(Math.max(begin, left), left + room - 2);
    const width = Math.max(Math.min(xOf(endOf(span, options), options), left + room) - x, 2);
    const shape = { x, y, width, height, rx: Math.min(3, width / 2) };
    if (show(ground, opacity < 1)) put(ground, { ...shape, fill: "var(--card)" });
    put(body, { ...shape, fill, opacity });
    if (show(stripes, hatched)) put(stripes, { ...shape, fill: `url(#${hatch})` });
    const half = height / 2 - 4;
    if (show(onward, span.end_us === null)) put(onward, { d: `M${x + width - 8},${y + 4}l5,${half}l-5,${half}`, fill: "none", stroke: "#fff", "stroke-width": 2 });
    const marked = show(mark, elected && begin >= left);
    if (marked) put(mark, { d: `M${x - 5},${y + height + 2}l5,-9l5,9z`, fill: "var(--ink)", stroke: "var(--card)", "stroke-width": 1.5, "paint-order": "stroke" });
    const indent = marked ? 9 : 5, long = (word) => word.length * 6.6 + 3 + indent;
    const inside = words.find((word) => word && long(word) < width), beside = words.at(-1);
    if (!show(text, Boolean(inside || (beside && x + width + beside.length * 6.6 + 8 < until)))) return;
    put(text, { class: inside && !pale ? "inside" : "ink", x: inside ? x + indent : x + width + 4, y: y + height / 2 + 4 });
    write(text, inside || beside);
  };

  const drawLane = (group, lane, place, hatch, options) => {
    const { from, to, left, width, height } = options, y = place * (height + GAP) + TOP;
    const [name, spans] = group.children, [title, shown] = name.children, fits = Math.floor((left - 12) / 6.2), isLong = lane.label.length > fits;
    put(name, { x: left - 10, y: y + height / 2 + 4 });
    write(title, isLong ? lane.label : "");
    write(shown, isLong ? `${lane.label.slice(0, fits - 1)}…` : lane.label);
    const visible = lane.spans.filter((span) => span.begin_us <= to && endOf(span, options) >= from);
    keyed(spans, visible, (span) => span.begin_us, newSpan, (node, span, at) => {
      const next = visible[at + 1];
      drawSpan(node, span, y, Math.min(next ? xOf(next.begin_us, options) : Infinity, left + width), hatch, options);
    });
  };
  const newLane = () => make("g", {}, make("text", { class: "label" }, make("title"), make("tspan")), make("g"));

  const drawTime = (group, us, text, bottom, options) => {
    const x = xOf(us, options), [line, label] = group.children;
    put(line, { x1: x, x2: x, y1: 0, y2: bottom });
    put(label, { x, y: bottom + 14 });
    write(label, text);
  };
  const newTime = () => make("g", {}, make("line", { class: "grid" }), make("text", { "text-anchor": "middle" }));

  // Draw lanes into a g or svg element that holds nothing else. Its size and its caption are the caller's.
  const drawLanes = (host, lanes, options) => {
    if (!host.hasChildNodes()) {
      const pattern = make("pattern", { id: `lane-hatch-${(hatches += 1)}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
      pattern.append(make("rect", { width: 3, height: 7, fill: "#000", opacity: 0.3 }));
      host.append(pattern, make("g"), make("g"));
    }
    const [pattern, times, rows] = host.children;
    const moments = (options.times ?? []).filter(([us]) => us >= options.from && us <= options.to);
    keyed(times, moments, ([us]) => us, newTime, (node, [us, text]) => drawTime(node, us, text, heightOf(lanes, options), options));
    let place = 0;
    keyed(rows, lanes, () => (place += 1), newLane, (node, lane, at) => drawLane(node, lane, at, pattern.id, options));
  };

  // The lane and the span at a point of the drawing, within three pixels; null if there is none.
  const spanAt = (lanes, x, y, options) => {
    const { from, to, left, width, height } = options, lane = lanes[Math.floor((y - GAP / 2) / (height + GAP))];
    const at = from + (Math.min(Math.max(x - left, 0), width) / width) * (to - from), near = ((to - from) / width) * 3;
    const span = lane?.spans.find((each) => each.begin_us - near <= at && at <= endOf(each, options) + near);
    return span ? { lane, span } : null;
  };

  return Object.freeze({ drawLanes, heightOf, spanAt });
})();
