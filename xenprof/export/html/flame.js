// Draws a model into a canvas.

const ROW = 19, FONT = '12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace';
const NARROWEST = 0.6;   // pixels; narrower neighbours are drawn together
const MAX_ROWS = 800;    // a canvas has a greatest height

// By FrameKind: unknown, hypervisor, dom0 kernel, dom0 user, guest kernel, guest user. [hue, saturation, lightness]
const KIND_COLOURS = [[220, 5, 74], [338, 68, 74], [27, 86, 71], [146, 36, 67], [217, 66, 75], [190, 48, 69]];
const GROUP_COLOUR = [222, 14, 84];

class Flame {
  constructor(canvas, model) {
    this.canvas = canvas;
    this.model = model;
    this.zoom = 0;
    this.selected = -1;
    this.icicle = false;
    this.boxes = [];  // of the last drawing: {node (-1: narrow ones together), x, width, row, count}
    this.colours = model.labels.map((label) => this.colourOf(label));
  }

  static css(hsl, shift = 0) {
    return `hsl(${hsl[0]} ${hsl[1]}% ${hsl[2] + shift}%)`;
  }

  colourOf(label) {
    if (label.type !== LABEL_FUNCTION) return Flame.css(GROUP_COLOUR);
    // Neighbours of a kind differ a little, always the same for a name.
    let hash = 0;
    for (let i = 0; i < label.name.length; i++) hash = (hash * 31 + label.name.charCodeAt(i)) | 0;
    const [hue, saturation, lightness] = KIND_COLOURS[label.kind] || KIND_COLOURS[0];
    return Flame.css([hue + (hash & 15) - 8, saturation, lightness + ((hash >> 4) & 7) - 3]);
  }

  layout(width) {
    const model = this.model, boxes = [], top = this.zoom;
    const rows = model.depth[top];
    for (let i = top, row = rows; i >= 0; i = model.parent[i], row--) {
      boxes.push({node: i, x: 0, width, row, above: i !== top});
    }
    this.cut = false;
    if (model.total[top] > 0) {
      const scale = width / model.total[top];
      const open = [top], at = [0];
      while (open.length > 0) {
        const node = open.pop();
        let x = at.pop(), narrow = 0, narrowCount = 0;
        const row = model.depth[node] + 1;
        if (row >= MAX_ROWS) {
          this.cut = true;
          continue;
        }
        const flush = () => {
          if (narrow >= NARROWEST) boxes.push({node: -1, x: x - narrow, width: narrow, row, count: narrowCount});
          narrow = narrowCount = 0;
        };
        for (let child = node + 1; child < model.end[node]; child = model.end[child]) {
          const wide = model.total[child] * scale;
          if (wide >= NARROWEST) {
            flush();
            boxes.push({node: child, x, width: wide, row, above: false});
            open.push(child);
            at.push(x);
          } else if (wide > 0) {
            narrow += wide;
            narrowCount++;
          }
          x += wide;
        }
        flush();
      }
    }
    this.boxes = boxes;
    this.rows = 1 + boxes.reduce((most, box) => Math.max(most, box.row), 0);
  }

  y(row) {
    return (this.icicle ? row : this.rows - 1 - row) * ROW;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1, canvas = this.canvas;
    const width = canvas.parentElement.clientWidth - 16;
    if (width <= 0) return;
    this.layout(width);
    const height = this.rows * ROW;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + 'px';
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.clearRect(0, 0, width, height);
    context.font = FONT;
    context.textBaseline = 'middle';
    const letter = context.measureText('MMMMMMMMMM').width / 10;
    const matches = this.model.matches;
    for (const box of this.boxes) {
      const y = this.y(box.row), label = box.node < 0 ? -1 : this.model.label[box.node];
      const wide = Math.max(box.width - (box.width > 2 ? 0.8 : 0), 0.5);
      const matched = matches !== null && label >= 0 && matches[label];
      context.globalAlpha = box.above ? 0.5 : matches !== null && !matched ? 0.35 : 1;
      context.fillStyle = label < 0 ? 'hsl(220 5% 62%)' : matched ? 'hsl(276 72% 52%)' : this.colours[label];
      context.fillRect(box.x, y + 0.5, wide, ROW - 1.5);
      const letters = Math.floor((wide - 7) / letter);
      if (label >= 0 && letters >= 3) {
        let text = this.model.labels[label].name;
        if (text.length > letters) text = text.slice(0, letters - 1) + '\u2026';
        context.globalAlpha = box.above ? 0.8 : matches !== null && !matched ? 0.55 : 1;
        context.fillStyle = matched ? '#fff' : '#15181d';
        context.fillText(text, box.x + 4, y + ROW / 2 + 0.5);
      }
    }
    context.globalAlpha = 1;
    const chosen = this.boxOf(this.selected);
    if (chosen) {
      context.strokeStyle = '#1440a0';
      context.lineWidth = 2;
      context.strokeRect(chosen.x + 1, this.y(chosen.row) + 1, Math.max(chosen.width - 2.4, 1), ROW - 2.5);
    }
  }

  boxOf(node) {
    return node < 0 ? undefined : this.boxes.find((box) => box.node === node);
  }

  // The box under a point of the page, or undefined.
  hit(clientX, clientY) {
    const area = this.canvas.getBoundingClientRect();
    const x = clientX - area.left, line = Math.floor((clientY - area.top) / ROW);
    const row = this.icicle ? line : this.rows - 1 - line;
    return this.boxes.find((box) => box.row === row && x >= box.x && x < box.x + Math.max(box.width, 0.6));
  }

  // The drawn neighbour of the selected frame: 'caller', 'callee', 'left', 'right'.
  neighbour(where) {
    const here = this.boxOf(this.selected);
    if (!here) return this.zoom;
    if (where === 'caller') return this.model.parent[here.node] >= 0 ? this.model.parent[here.node] : here.node;
    const candidates = this.boxes.filter((box) => box.node >= 0);
    let best = here;
    if (where === 'callee') {
      let most = -1;
      for (const box of candidates) {
        if (this.model.parent[box.node] === here.node && box.width > most) [best, most] = [box, box.width];
      }
    } else {
      const sign = where === 'left' ? -1 : 1;
      let nearest = Infinity;
      for (const box of candidates) {
        const distance = (box.x - here.x) * sign;
        if (box.row === here.row && box !== here && distance > 0 && distance < nearest) {
          [best, nearest] = [box, distance];
        }
      }
    }
    return best.node;
  }
}
