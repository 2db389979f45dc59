"""A reader of chunk files that shares no code with xenprof: proto/chunk.proto, libzstd and the protobuf wire format.

Used to judge what the programs wrote, so it is strict: whatever does not add up raises ChunkError.
"""
import collections
import ctypes
import ctypes.util

FRAME_KINDS = ['unknown', 'hypervisor', 'dom0_kernel', 'dom0_user', 'guest_kernel', 'guest_user']
ORIGINS = ['unknown', 'dom0_user', 'dom0_kernel', 'xen_for_dom0', 'xen_idle', 'xen_for_guest', 'guest_kernel',
           'guest_user']
MODES = ['unspecified', 'xen stacks', 'xen leaf only', 'dom0 only', 'plain linux']

Mapping = collections.namedtuple('Mapping', 'kind name build_id is_file')
Frame = collections.namedtuple('Frame', 'mapping address')
Sample = collections.namedtuple('Sample', 'cpu time_ns stack')
Stack = collections.namedtuple('Stack', 'origin flags frames')  # frames: indexes, leaf first


class ChunkError(Exception):
    pass


def _crc_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ChunkError(f'varint cut off at {at}')
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _signed(value):
    return (value >> 1) ^ -(value & 1)


def _fields(data):
    """Field number -> values in order: ints, or bytes for length-delimited ones."""
    fields = collections.defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ChunkError(f'field {key >> 3} is longer than its message')
            value, at = data[at:at + length], at + length
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
            value, at = int.from_bytes(data[at:at + length], 'little'), at + length
        else:
            raise ChunkError(f'wire type {wire}')
        fields[key >> 3].append(value)
    return fields


def _numbers(fields, number, signed=False):
    """A repeated scalar, packed or not."""
    out = []
    for value in fields[number]:
        if isinstance(value, int):
            out.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            out.append(one)
    return [_signed(value) for value in out] if signed else out


def _references(fields, number, first):
    """A column of References: above 0 counts on from the highest so far, at the start the entry before `first`."""
    highest, out = first - 1, []
    for value in _numbers(fields, number, signed=True):
        if value > 0:
            highest += value
        out.append(highest if value > 0 else -value)
    return out


def _number(fields, number):
    return fields[number][-1] if fields[number] else 0


def _text(fields, number):
    return fields[number][-1].decode('utf-8', 'replace') if fields[number] else ''


def _references(numbers, first):
    """Ids of a column of References: n > 0 is n above the highest so far, n <= 0 is -n."""
    ids, highest = [], first - 1
    for number in numbers:
        ids.append(highest + number if number > 0 else -number)
        highest = max(highest, ids[-1])
    return ids


def _zstd(data, size):
    name = ctypes.util.find_library('zstd') or 'libzstd.so.1'
    library = ctypes.CDLL(name)
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    library.ZSTD_isError.argtypes = [ctypes.c_size_t]
    target = ctypes.create_string_buffer(max(size, 1))
    got = library.ZSTD_decompress(target, size, data, len(data))
    if library.ZSTD_isError(got) or got != size:
        raise ChunkError(f'zstd: {size} bytes promised')
    return target.raw[:size]


class Chunk:
    """mappings, frames, stacks, samples, mode, hypervisor and, when sealed, trailer_* of one file."""

    def __init__(self, path):
        self.mappings, self.frames, self.stacks, self.samples = [], [], [], []
        self.symbols = {}  # mapping -> ascending (start, size, name)
        self.nodes = []    # (caller's node, frame)
        self.sealed = False
        self.mode = self.mode_reason = self.vpmu = ''
        self.incidents = []
        self.blocks = 0
        with open(path, 'rb') as file:
            data = file.read()
        at = 0
        while at < len(data):
            length, start = _varint(data, at)
            if start + length > len(data):
                raise ChunkError(f'{path}: the envelope at {at} is cut off')
            if self.sealed:
                raise ChunkError(f'{path}: an envelope behind the trailer, at {at}')
            self._envelope(_fields(data[start:start + length]), f'{path}, offset {at}')
            at = start + length

    def _envelope(self, envelope, where):
        payload = envelope[3][-1]
        if crc32c(payload) != _number(envelope, 1):
            raise ChunkError(f'{where}: checksum')
        if _number(envelope, 2) == 1:
            payload = _zstd(payload, _number(envelope, 4))
        kinds = _fields(payload)
        if kinds[1]:
            self._header(_fields(b''.join(kinds[1])))
        # A message given in pieces is the pieces put together.
        if kinds[2]:
            self._block(_fields(b''.join(kinds[2])), where)
        if kinds[3]:
            self._symbols(_fields(b''.join(kinds[3])))
        if kinds[4]:
            self._trailer(_fields(b''.join(kinds[4])))

    def _mode(self, fields):
        self.mode = MODES[_number(fields, 1)]
        self.mode_reason, self.vpmu = _text(fields, 2), _text(fields, 3)

    def _header(self, header):
        if _text(header, 1) != 'xenprof':
            raise ChunkError('no magic')
        event = _fields(b''.join(header[8]))
        self.event, self.frequency_hz = _text(event, 1), _number(event, 2)
        self._mode(_fields(b''.join(header[9])))
        self.notes = [_text(_fields(note), 2) for note in header[13]]
        xen = _fields(b''.join(header[10]))
        self.xen_version, self.xen_build_id = _text(xen, 1), b''.join(xen[3])
        self.xen_command_line = _text(xen, 4)
        self.pinned = _numbers(xen, 8)
        self.xen_unavailable = _text(xen, 9)

    def _block(self, block, where):
        self.blocks += 1
        if block[7]:
            self._mode(_fields(b''.join(block[7])))
        self.incidents += [(_number(f, 1), _number(f, 2) - 1, _number(f, 5), _text(f, 6))
                           for f in map(_fields, block[6])]
        words = _fields(b''.join(block[4]))

        def expect(field, have, what):
            if words[field] and _number(words, field) != len(have):
                raise ChunkError(f'{where}: first {what} is {_number(words, field)}, there are {len(have)}')

        expect(3, self.mappings, 'mapping')
        for fields in map(_fields, words[4]):
            self.mappings.append(Mapping(FRAME_KINDS[_number(fields, 1)], _text(fields, 2), b''.join(fields[3]),
                                         bool(_number(fields, 4))))
        expect(9, self.frames, 'frame')
        previous = collections.defaultdict(int)
        for mapping, step in zip(_numbers(words, 10), _numbers(words, 11, signed=True), strict=True):
            previous[mapping] = (previous[mapping] + step) % 2**64
            self.frames.append(Frame(mapping, previous[mapping]))
        expect(12, self.nodes, 'node')
        first_node = len(self.nodes)
        frames = _references(_numbers(words, 14, signed=True)[first_node == 0:], _number(words, 9))
        for parent, frame in zip(_numbers(words, 13), ([0] if first_node == 0 else []) + frames, strict=True):
            self.nodes.append((parent - 1 if parent else len(self.nodes) - 1, frame))
        expect(15, self.stacks, 'stack')
        last_leaf = 0
        for step, kind in zip(_numbers(words, 16, signed=True), _numbers(words, 17), strict=True):
            last_leaf += step
            leaf, frames = last_leaf, []
            while leaf:
                if not 0 < leaf < len(self.nodes):
                    raise ChunkError(f'{where}: node {leaf} of {len(self.nodes)}')
                caller, frame = self.nodes[leaf]
                if caller >= leaf or frame >= len(self.frames):
                    raise ChunkError(f'{where}: node {leaf} has caller {caller}, frame {frame}')
                frames.append(frame)
                leaf = caller
            self.stacks.append(Stack(ORIGINS[kind & 15], kind >> 4, frames))
        for cpu in map(_fields, block[5]):
            time, usual = _number(cpu, 2), _number(cpu, 4)
            steps, stacks = _numbers(cpu, 3, signed=True), _references(_numbers(cpu, 5, signed=True), _number(words, 15))
            low_bytes, low = _number(cpu, 8), b''.join(cpu[9])
            for index, (step, stack) in enumerate(zip(steps, stacks, strict=True)):
                step = (step << 8 * low_bytes) + sum(low[len(steps) * i + index] << 8 * i for i in range(low_bytes))
                if index:
                    time += step + usual
                if stack >= len(self.stacks):
                    raise ChunkError(f'{where}: stack {stack} of {len(self.stacks)}')
                self.samples.append(Sample(_number(cpu, 1), time, stack))

    def _symbols(self, symbols):
        strings = [text.decode('utf-8', 'replace') for text in symbols[1]]
        for fields in map(_fields, symbols[2]):
            table, start = self.symbols.setdefault(_number(fields, 1), []), 0
            for step, size, name in zip(_numbers(fields, 4), _numbers(fields, 5), _numbers(fields, 6), strict=True):
                start += step
                table.append((start, size, strings[name]))

    def _trailer(self, trailer):
        self.sealed = True
        self.trailer_samples, self.trailer_lost = _number(trailer, 4), _number(trailer, 5)
        if self.trailer_samples != len(self.samples):
            raise ChunkError(f'the trailer counts {self.trailer_samples} samples, there are {len(self.samples)}')

    def name(self, frame, is_leaf):
        """The function's name, '' when the chunk has none."""
        import bisect
        mapping, address = self.frames[frame]
        address -= 0 if is_leaf else 1
        table = self.symbols.get(mapping, [])
        index = bisect.bisect_right(table, address, key=lambda entry: entry[0]) - 1
        if index < 0 or (table[index][1] and address >= table[index][0] + table[index][1]):
            return ''
        return table[index][2]

    def kind(self, frame):
        return self.mappings[self.frames[frame].mapping].kind

    def origins(self):
        return collections.Counter(self.stacks[sample.stack].origin for sample in self.samples)
