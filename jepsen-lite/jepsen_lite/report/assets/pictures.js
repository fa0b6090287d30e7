// Histories that no order explains: a box for each operation, and a line for the longest order through one of them.
"use strict";
(() => {
  const { scene, ops, draw, showTip, hideTip, describe, nodeColour, kindColour, NODE, OFFSET, EPOCH } = kraftlab;
  const HEIGHT = 50, GAP = 12, LEFT = 110, TOP = 20, ORDER = 41;

  class Picture {
    constructor(article) {
      this.history = scene.illegal[Number(article.dataset.illegal)];
      this.host = article.querySelector(".drawn");
      this.note = article.querySelector(".note");
      this.chosen = -1;
      this.use(this.history.alone);
      const among = article.querySelector("[data-do=among]");
      if (among) among.addEventListener("click", () => {
        const isOn = this.data === this.history.alone;
        among.setAttribute("aria-pressed", isOn);
        this.use(isOn ? this.history.among : this.history.alone);
      });
      article.querySelector("[data-do=jump]").addEventListener("click", () => this.jump());
      article.querySelector("[data-do=longest]").addEventListener("click", () => this.show(0));
      this.host.addEventListener("keydown", (event) => this.key(event));
    }
    use(picture) {
      this.data = picture;
      this.slot = Math.min(Math.max((this.host.clientWidth - LEFT - 30) / picture.slots, 66), 150);
      this.boxes = new Map();
      this.order = [...picture.boxes].sort((a, b) => a.begin - b.begin || a.lane - b.lane);
      this.host.replaceChildren();
      this.build();
      this.show(0);
      this.jump();
    }
    x(slot) { return LEFT + slot * this.slot; }
    y(lane) { return TOP + lane * (HEIGHT + GAP); }
    build() {
      const width = this.x(this.data.slots) + 24, height = this.y(this.data.lanes.length) + 8;
      const svg = draw("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
      this.data.lanes.forEach((name, lane) => {
        svg.append(draw("rect", { class: "lane", x: 0, y: this.y(lane) - GAP / 2, width, height: HEIGHT + GAP, opacity: lane % 2 ? 0 : 0.7 }));
        svg.append(draw("text", { x: 10, y: this.y(lane) + HEIGHT / 2 + 4 }, `process ${name.length > 11 ? `${name.slice(0, 10)}…` : name}`));
      });
      let labelEnd = 0;
      for (const shade of [...this.data.shades].sort((a, b) => a.begin - b.begin)) {
        const rect = draw("rect", { x: this.x(shade.begin), y: 0, width: Math.max((shade.end - shade.begin) * this.slot, 2), height, fill: kindColour(shade.kind), opacity: "var(--shade)" });
        rect.addEventListener("pointermove", (event) => showTip(event, shade.text));
        rect.addEventListener("pointerleave", hideTip);
        svg.append(rect);
        const x = Math.max(this.x(shade.begin), LEFT) + 4;
        if (x < labelEnd) continue;
        svg.append(draw("text", { x, y: 11, style: `fill:${kindColour(shade.kind)}` }, shade.kind));
        labelEnd = x + shade.kind.length * 7;
      }
      for (const box of this.data.boxes) svg.append(this.box(box));
      this.overlay = draw("g");
      svg.append(this.overlay);
      this.host.append(svg);
    }
    box(box) {
      const op = ops.get(box.op), group = draw("g", { role: "button", "aria-label": describe(op) });
      const x = this.x(box.begin) + 3, y = this.y(box.lane), width = (box.end - box.begin) * this.slot - 6;
      const d = box.is_open
        ? `M${x + width + 6},${y}H${x + 7}a7,7 0 0 0 -7,7v${HEIGHT - 14}a7,7 0 0 0 7,7H${x + width + 6}`
        : `M${x + 7},${y}h${width - 14}a7,7 0 0 1 7,7v${HEIGHT - 14}a7,7 0 0 1 -7,7h${14 - width}a7,7 0 0 1 -7,-7v${14 - HEIGHT}a7,7 0 0 1 7,-7z`;
      group.append(draw("path", { class: `box${box.is_minimal ? " minimal" : ""}`, d, stroke: op[NODE] >= 0 ? nodeColour(op[NODE]) : "var(--faint)", "stroke-dasharray": box.is_open ? "6 3" : "" }));
      const fits = Math.max(Math.floor((width - 12) / 7), 3), label = box.label.length > fits ? `${box.label.slice(0, fits - 1)}…` : box.label;
      group.append(draw("text", { class: "what", x: x + 7, y: y + 15 }, label));
      const where = [op[NODE] >= 0 ? `${op[NODE]}` : "", op[OFFSET] >= 0 ? `@${op[OFFSET]}` : "", op[EPOCH] >= 0 ? `e${op[EPOCH]}` : ""].filter(Boolean).join(" ");
      const small = Math.max(Math.floor((width - 12) / 5.8), 3);
      group.append(draw("text", { class: "where", x: x + 7, y: y + 28 }, where.length > small ? `${where.slice(0, small - 1)}…` : where));
      group.addEventListener("pointermove", (event) => showTip(event, this.noteOf(box)));
      group.addEventListener("pointerleave", hideTip);
      group.addEventListener("click", () => this.choose(box));
      this.boxes.set(box.op, { group, box });
      return group;
    }
    noteOf(box) {
      const text = describe(ops.get(box.op)), line = this.data.lines[this.line];
      const place = line ? line.points.findIndex((point) => point.op === box.op) : -1;
      const refused = line && line.refused.find((point) => point.op === box.op);
      if (refused) return `${text}\n✕ refused next: the state is ${(line.points.at(-1) || { text: this.history.initial || "the first" }).text}`;
      if (!box.is_minimal) return `${text}\nnot needed for the contradiction`;
      if (place < 0) return box.through < 0 ? `${text}\nno order has it` : text;
      return `${text}\nstate ${place ? `${line.points[place - 1].text} → ` : this.history.initial ? `${this.history.initial} → ` : ""}${line.points[place].text}`;
    }
    show(number) {
      this.line = number;
      const line = this.data.lines[number];
      this.overlay.replaceChildren();
      if (!line) return;
      const at = (point) => [this.x(point.x), this.y(this.boxes.get(point.op).box.lane) + ORDER];
      const inside = new Set([...line.points, ...line.refused].map((point) => point.op));
      for (const [index, { group }] of this.boxes) group.classList.toggle("away", !inside.has(index));
      if (line.points.length) this.overlay.append(draw("path", { class: "order", d: `M${line.points.map((point) => at(point).join(",")).join("L")}` }));
      for (const point of line.points) { const [cx, cy] = at(point); this.overlay.append(draw("circle", { class: "dot", cx, cy, r: 4.5 })); }
      const last = line.points.length ? at(line.points.at(-1)) : null;
      for (const point of line.refused) {
        const [cx, cy] = at(point);
        if (last) this.overlay.append(draw("path", { class: "no", d: `M${last.join(",")}L${cx},${cy}` }));
        this.overlay.append(draw("circle", { class: "refused", cx, cy, r: 7 }));
      }
      this.note.textContent = `${line.points.length} of ${this.history.alone.boxes.length} in order, ${line.refused.length} refused next${number ? `; the longest through ${this.chosen}` : ""}`;
    }
    choose(box) {
      this.chosen = box.op;
      if (box.through >= 0) this.show(box.through);
      else this.note.textContent = box.is_minimal ? `No order has operation ${box.op}.` : `Operation ${box.op} is not needed for the contradiction.`;
      kraftlab.choose(box.op);
    }
    key(event) {
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const place = this.order.findIndex((box) => box.op === this.chosen);
      const next = this.order[Math.min(Math.max(place + by, 0), this.order.length - 1)];
      this.choose(next);
      this.host.scrollLeft = this.x(next.begin) - this.host.clientWidth / 2;
    }
    jump() {
      const line = this.data.lines[this.line];
      if (line && line.refused.length) this.host.scrollLeft = this.x(Math.min(...line.refused.map((point) => point.x))) - this.host.clientWidth / 2;
    }
  }
  for (const article of document.querySelectorAll("[data-illegal]")) new Picture(article);
})();
