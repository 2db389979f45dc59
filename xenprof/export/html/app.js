// Brings model, drawing and controls together. Names of a profile are only ever set as text, never as markup.

const byId = (id) => document.getElementById(id);
const KIND_NAMES = ['unknown', 'hypervisor', 'dom0 kernel', 'dom0 user', 'guest kernel', 'guest user'];
// Of each origin, the kind whose colour stands for it.
const ORIGIN_KINDS = [0, 3, 2, 1, 1, 1, 4, 5];

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function swatch(kind) {
  const made = element('i');
  made.style.background = Flame.css(KIND_COLOURS[kind]);
  return made;
}

const count = (n) => n.toLocaleString('en-US');
const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(2) + ' %' : '-';

function address(label) {
  if (label.high === 0 && label.low === 0) return '';
  const low = label.low.toString(16);
  return '0x' + (label.high === 0 ? low : label.high.toString(16) + low.padStart(8, '0'));
}

class App {
  constructor(model) {
    this.model = model;
    this.flame = new Flame(byId('canvas'), model);
    this.shown = new Array(8).fill(true);
    this.fillHeader();
    this.fillOrigins();
    this.fillKinds();
    this.listen();
    // page.html#search=TEXT opens with that search.
    const asked = /^#search=(.+)$/.exec(window.location.hash);
    if (asked) {
      byId('search').value = decodeURIComponent(asked[1]);
      this.search();
    }
    this.refresh();
  }

  fillHeader() {
    const meta = this.model.meta;
    byId('host').textContent = meta.host;
    for (const [name, text] of meta.facts) {
      const row = element('div');
      row.append(element('dt', name), element('dd', text));
      byId('facts').append(row);
    }
    const add = (className, name, text, details) => {
      const holder = element(details.length > 0 ? 'details' : 'div', undefined, 'verdict ' + className);
      const line = details.length > 0 ? element('summary') : holder;
      line.append(element('b', name + ' '), text);
      if (details.length > 0) {
        const list = element('ul');
        for (const detail of details) list.append(element('li', detail));
        holder.append(line, list);
      }
      byId('verdicts').append(holder);
    };
    for (const mode of meta.modes) add('', 'Mode', mode, []);
    for (const sentence of meta.unseen) add('warn', 'Not seen', sentence, []);
    add(meta.complete ? 'good' : 'warn', 'Coverage', meta.coverage, meta.details);
    const several = (list, name) => list.length === 1 ? '1 ' + name : `${list.length} ${name}s`;
    if (meta.warnings.length > 0) add('', 'Collection', several(meta.warnings, 'warning'), meta.warnings);
    if (meta.remarks.length > 0) add('', 'Stacks', several(meta.remarks, 'remark'), meta.remarks);
  }

  fillOrigins() {
    const model = this.model;
    model.meta.origins.forEach((name, origin) => {
      if (model.originSamples[origin] === 0) return;
      const chip = element('button', undefined, 'chip');
      chip.type = 'button';
      chip.setAttribute('aria-pressed', 'true');
      chip.title = 'Show or hide these samples';
      chip.append(swatch(ORIGIN_KINDS[origin]), name, element('span', share(model.originSamples[origin], model.samples)));
      chip.addEventListener('click', () => {
        this.shown[origin] = !this.shown[origin];
        chip.setAttribute('aria-pressed', String(this.shown[origin]));
        model.show(this.shown);
        if (model.total[this.flame.zoom] === 0) this.flame.zoom = 0;
        this.refresh();
      });
      byId('origins').append(chip);
    });
  }

  fillKinds() {
    const used = new Set(this.model.labels.filter((label) => label.type === LABEL_FUNCTION).map((label) => label.kind));
    for (let kind = 0; kind < KIND_NAMES.length; kind++) {
      if (!used.has(kind)) continue;
      const item = element('li');
      item.append(swatch(kind), KIND_NAMES[kind]);
      byId('kinds').append(item);
    }
  }

  listen() {
    const canvas = byId('canvas'), search = byId('search');
    canvas.addEventListener('mousemove', (event) => this.hover(event));
    canvas.addEventListener('mouseleave', () => this.hideTooltip());
    canvas.addEventListener('click', (event) => {
      const box = this.flame.hit(event.clientX, event.clientY);
      if (box && box.node >= 0) this.zoomTo(box.node);
    });
    search.addEventListener('input', () => this.search());
    search.addEventListener('keydown', (event) => {
      if (event.key === 'Enter') this.model.matches !== null && canvas.focus();
      if (event.key === 'Escape') {
        search.value = '';
        this.search();
        canvas.focus();
        event.stopPropagation();
      }
    });
    byId('unzoom').addEventListener('click', () => this.zoomTo(0));
    byId('icicle').addEventListener('click', () => this.toggleIcicle());
    byId('help').addEventListener('click', () => this.toggleHelp());
    document.addEventListener('keydown', (event) => this.key(event));
    // What unfolds above the graph changes its height, the window's width its drawing.
    const observer = new ResizeObserver(() => this.fit());
    for (const part of [document.querySelector('header'), byId('keys'), byId('toolbar'), byId('graph')]) {
      observer.observe(part);
    }
    window.addEventListener('resize', () => this.fit());
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === byId('search')) return;
    const up = this.flame.icicle ? 'caller' : 'callee', down = this.flame.icicle ? 'callee' : 'caller';
    const moves = {ArrowUp: up, ArrowDown: down, ArrowLeft: 'left', ArrowRight: 'right'};
    const onCanvas = event.target === byId('canvas');
    if (moves[event.key] && onCanvas) {
      this.select(this.flame.neighbour(moves[event.key]));
    } else if (event.key === 'Enter' && onCanvas) {
      if (this.flame.selected >= 0) this.zoomTo(this.flame.selected);
    } else if (event.key === 'Escape' || event.key === 'Backspace') {
      this.zoomTo(Math.max(this.model.parent[this.flame.zoom], 0));
    } else if (event.key === 'Home' && onCanvas) {
      this.zoomTo(0);
    } else if (event.key === '/') {
      byId('search').focus();
    } else if (event.key === 'i') {
      this.toggleIcicle();
    } else if (event.key === '?') {
      this.toggleHelp();
    } else {
      return;
    }
    event.preventDefault();
  }

  // Gives the graph the rest of the window, so that its roots are in sight without scrolling the page.
  fit() {
    const graph = byId('graph'), top = graph.getBoundingClientRect().top + window.scrollY;
    const height = Math.max(320, window.innerHeight - top - 64) + 'px';
    const width = graph.clientWidth;
    if (graph.style.maxHeight === height && this.width === width) return;
    graph.style.maxHeight = height;
    this.width = width;
    this.flame.draw();
    this.scrollToRoot();
  }

  toggleIcicle() {
    this.flame.icicle = !this.flame.icicle;
    byId('icicle').setAttribute('aria-pressed', String(this.flame.icicle));
    this.flame.draw();
    this.scrollToRoot();
  }

  toggleHelp() {
    const keys = byId('keys');
    keys.hidden = !keys.hidden;
    byId('help').setAttribute('aria-expanded', String(!keys.hidden));
  }

  zoomTo(node) {
    this.flame.zoom = node;
    this.flame.selected = node === 0 ? -1 : node;
    this.hideTooltip();
    this.refresh();
  }

  select(node) {
    this.flame.selected = node;
    this.flame.draw();
    const box = this.flame.boxOf(node);
    if (!box) return;
    const graph = byId('graph'), y = this.flame.y(box.row);
    if (y < graph.scrollTop) graph.scrollTop = y;
    if (y + ROW * 2 > graph.scrollTop + graph.clientHeight) graph.scrollTop = y + ROW * 2 - graph.clientHeight;
    const area = byId('canvas').getBoundingClientRect();
    this.showTooltip(box, area.left + box.x + Math.min(box.width / 2, 60), area.top + y + ROW);
    this.tell(node);
  }

  // What a screen reader and the status line say of a frame.
  tell(node) {
    const model = this.model, label = model.labels[model.label[node]];
    const parts = [label.name, `self ${count(model.self[node])}`,
      `total ${count(model.total[node])} (${share(model.total[node], model.total[0])})`];
    byId('status').textContent = parts.join(' \u00b7 ') + (this.flame.cut ? ' \u00b7 deeper frames show after zooming' : '');
  }

  search() {
    const input = byId('search');
    try {
      this.model.search(input.value.trim());
      input.classList.remove('bad');
    } catch (error) {
      input.classList.add('bad');  // a regular expression half typed
      return;
    }
    this.flame.draw();
    this.tellMatched();
  }

  tellMatched() {
    const model = this.model, top = this.flame.zoom;
    byId('matched').textContent = model.matches === null ? '' :
        `${share(model.matchedSamples(top), model.total[top])} matched (${count(model.matchedSamples(top))})`;
  }

  hover(event) {
    const box = this.flame.hit(event.clientX, event.clientY);
    if (box) {
      this.showTooltip(box, event.clientX, event.clientY);
    } else {
      this.hideTooltip();
    }
  }

  showTooltip(box, x, y) {
    const tooltip = byId('tooltip'), model = this.model;
    tooltip.replaceChildren();
    if (box.node < 0) {
      tooltip.append(element('b', `${count(box.count)} frames too narrow to draw`), element('div', 'Zoom in to see them.'));
    } else {
      const label = model.labels[model.label[box.node]];
      tooltip.append(element('b', label.name));
      if (label.type === LABEL_FUNCTION) {
        const where = [KIND_NAMES[label.kind], label.module, address(label)].filter((text) => text !== '');
        tooltip.append(element('div', where.join(' \u00b7 ')));
      } else if (label.type === LABEL_ROOT) {
        tooltip.append(element('div', 'whose time it was'));
      }
      const self = model.self[box.node], total = model.total[box.node];
      tooltip.append(element('div', `total ${count(total)} (${share(total, model.total[0])})` +
          ` \u00b7 self ${count(self)} (${share(self, model.total[0])})`, 'counts'));
      if (this.flame.zoom !== 0 && !box.above) {
        tooltip.append(element('div', `${share(total, model.total[this.flame.zoom])} of what is zoomed`, 'counts'));
      }
    }
    tooltip.hidden = false;
    const {width, height} = tooltip.getBoundingClientRect();
    tooltip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - width - 8)) + 'px';
    tooltip.style.top = (y + 18 + height > window.innerHeight ? Math.max(4, y - height - 12) : y + 18) + 'px';
  }

  hideTooltip() {
    byId('tooltip').hidden = true;
  }

  scrollToRoot() {
    const graph = byId('graph');
    graph.scrollTop = this.flame.icicle ? 0 : graph.scrollHeight;
  }

  refresh() {
    this.fit();
    this.flame.draw();
    this.scrollToRoot();
    this.tellMatched();
    const model = this.model, top = this.flame.zoom;
    const of = top === 0 ? '' : `below ${model.labels[model.label[top]].name}, `;
    byId('hottest-of').textContent = `(${of}${count(model.total[top])} samples)`;
    if (top === 0) {
      byId('status').textContent = this.flame.cut ? 'Deeper frames show after zooming.' : '';
    } else {
      this.tell(top);
    }
    this.fillFunctions();
  }

  fillFunctions() {
    const model = this.model, top = this.flame.zoom, whole = model.total[top];
    const rows = model.hottest(top, 50).map(({label, self, total}) => {
      const row = element('tr'), of = model.labels[label];
      const name = element('button');
      name.type = 'button';
      name.title = 'Search this name';
      name.append(swatch(of.kind), of.name);
      name.addEventListener('click', () => {
        byId('search').value = of.name;
        this.search();
      });
      const cell = element('td');
      cell.append(name);
      row.append(element('td', share(self, whole), 'number'), element('td', count(self), 'number'),
          element('td', share(total, whole), 'number'), cell, element('td', of.module));
      return row;
    });
    byId('functions').replaceChildren(...rows);
  }
}

unpack(byId('data').textContent.trim()).then((bytes) => {
  window.xenprof = new App(new Model(bytes));
  document.body.dataset.ready = 'true';
}).catch((error) => {
  const failure = byId('failure');
  failure.textContent = error.message;
  failure.hidden = false;
  document.body.dataset.ready = 'failed';
});
