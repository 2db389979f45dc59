'use strict';
// The data of the page: unpacked, and what is computed from it. Layout of the bytes: ../html.h.

const LABEL_ALL = 0, LABEL_HOST = 1, LABEL_ROOT = 2, LABEL_FUNCTION = 3;

async function unpack(base64) {
  if (typeof DecompressionStream === 'undefined') {
    throw new Error('This browser is too old for this page: it cannot unpack its data (DecompressionStream).');
  }
  const text = atob(base64);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

class ByteReader {
  constructor(bytes) {
    this.bytes = bytes;
    this.at = 0;
    this.decoder = new TextDecoder();
  }
  // Up to 2^53, so arithmetic beyond 32 bits is by multiplication.
  number() {
    const bytes = this.bytes;
    let byte = bytes[this.at++];
    if (byte < 128) return byte;
    let value = byte & 127, scale = 128;
    do {
      byte = bytes[this.at++];
      value += (byte & 127) * scale;
      scale *= 128;
    } while (byte >= 128);
    return value;
  }
  text() {
    const length = this.number();
    this.at += length;
    return this.decoder.decode(this.bytes.subarray(this.at - length, this.at));
  }
}

class Model {
  constructor(bytes) {
    const reader = new ByteReader(bytes);
    if (reader.number() !== 1) throw new Error('The data of this page is of another version.');
    this.meta = JSON.parse(reader.text());
    const strings = [];
    for (let n = reader.number(); n > 0; n--) strings.push(reader.text());

    const labels = reader.number();
    this.labels = [];
    for (let i = 0; i < labels; i++) {
      const type = reader.number(), kind = reader.number();
      const name = strings[reader.number()], module = strings[reader.number()];
      const high = reader.number(), low = reader.number();
      this.labels.push({type, kind, name, module, high, low});
    }

    // Nodes in preorder: a node's children are those between it and end[it] that are one deeper.
    const n = this.count = reader.number();
    this.parent = new Int32Array(n);
    this.end = new Int32Array(n);
    this.depth = new Uint32Array(n);
    this.label = new Uint32Array(n);
    const selfNode = [], selfOrigin = [], selfCount = [], path = [];
    for (let i = 0; i < n; i++) {
      const depth = path.length - reader.number();
      while (path.length > depth) this.end[path.pop()] = i;
      this.parent[i] = depth > 0 ? path[depth - 1] : -1;
      this.depth[i] = depth;
      this.label[i] = reader.number();
      for (let entries = reader.number(); entries > 0; entries--) {
        selfNode.push(i);
        selfOrigin.push(reader.number());
        selfCount.push(reader.number());
      }
      path.push(i);
    }
    while (path.length > 0) this.end[path.pop()] = n;
    this.selfNode = Int32Array.from(selfNode);
    this.selfOrigin = Uint8Array.from(selfOrigin);
    this.selfCount = Float64Array.from(selfCount);
    this.originSamples = new Float64Array(8);
    for (let e = 0; e < this.selfNode.length; e++) this.originSamples[this.selfOrigin[e]] += this.selfCount[e];
    this.samples = this.originSamples.reduce((a, b) => a + b, 0);

    this.self = new Float64Array(n);
    this.total = new Float64Array(n);
    this.matches = null;  // per label, while a search is on
    this.show(new Array(8).fill(true));
  }

  // Counts only the samples of the origins with shown[origin].
  show(shown) {
    this.self.fill(0);
    for (let e = 0; e < this.selfNode.length; e++) {
      if (shown[this.selfOrigin[e]]) this.self[this.selfNode[e]] += this.selfCount[e];
    }
    this.total.set(this.self);
    for (let i = this.count - 1; i > 0; i--) this.total[this.parent[i]] += this.total[i];
  }

  // `query`: text that has to occur (case does not matter), or /a regular expression/. Throws on a bad one.
  search(query) {
    if (query === '') {
      this.matches = null;
      return;
    }
    const regex = /^\/(.+)\/$/.exec(query);
    let test;
    if (regex) {
      const expression = new RegExp(regex[1], 'i');
      test = (text) => expression.test(text);
    } else {
      const lower = query.toLowerCase();
      test = (text) => text.toLowerCase().includes(lower);
    }
    this.matches = this.labels.map(
        (label) => label.type !== LABEL_ALL && (test(label.name) || (label.module !== '' && test(label.module))));
  }

  // Samples below `top` with a match anywhere on their stack.
  matchedSamples(top) {
    let sum = 0;
    for (let i = top; i < this.end[top];) {
      if (this.matches[this.label[i]]) {
        sum += this.total[i];
        i = this.end[i];
      } else {
        i++;
      }
    }
    return sum;
  }

  // Self and total of each function below `top`, the hottest first.
  hottest(top, rows) {
    const self = new Map(), total = new Map(), open = new Map(), path = [];
    for (let i = top; i < this.end[top]; i++) {
      while (path.length > 0 && this.end[path[path.length - 1]] <= i) {
        const left = this.label[path.pop()];
        open.set(left, open.get(left) - 1);
      }
      if (this.total[i] === 0) {
        i = this.end[i] - 1;
        continue;
      }
      const label = this.label[i], depth = open.get(label) || 0;
      // A recursive function counts once a sample.
      if (depth === 0) total.set(label, (total.get(label) || 0) + this.total[i]);
      if (this.self[i] > 0) self.set(label, (self.get(label) || 0) + this.self[i]);
      open.set(label, depth + 1);
      path.push(i);
    }
    return [...self].filter(([label]) => this.labels[label].type === LABEL_FUNCTION)
        .sort((a, b) => b[1] - a[1]).slice(0, rows)
        .map(([label, count]) => ({label, self: count, total: total.get(label)}));
  }
}
