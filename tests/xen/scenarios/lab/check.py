#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402
import gzip  # noqa: E402
import re  # noqa: E402

from xencheck import Failed, folded_lines  # noqa: E402


@scenario('lab/start-turns-the-vpmu-on')
def _(carried):
    carried.expect_pmu('boot', '0x0', 'self')
    carried.succeeded('start')
    carried.expect_pmu('started', '0x8', 'all')


@scenario('lab/stop-puts-it-back')
def _(carried):
    carried.succeeded('stop')
    carried.expect_pmu('stopped', '0x0', 'self')


@scenario('lab/one-folded-line-from-program-to-xen')
def _(carried):
    carried.succeeded('ten-snapshot', 'ten-folded')
    xen, kernel = carried.xen_symbols().names, carried.kernel_symbols().names
    best = 0
    for frames, _ in folded_lines(carried.text('ten.folded')):
        names = [re.sub(r'_?\[\w+\]$', '', frame) for frame in frames]
        in_xen = [name in xen for name in names]
        # Names both have, such as memcpy, count for neither.
        first_xen = next((i for i, name in enumerate(names) if name in xen and name not in kernel), len(names))
        first_kernel = next((i for i, name in enumerate(names) if name in kernel and name not in xen), len(names))
        if 1 < first_kernel < first_xen < len(names):
            best = max(best, sum(in_xen[first_xen:]))
    need(best >= 2, 'no folded line has program, dom0 kernel and at least two Xen functions above each other')


@scenario('lab/all-origins-in-30-seconds-of-load')
def _(carried):
    carried.succeeded('guest-create', 'load-snapshot', 'load-report', 'load-report-text')
    carried.expect_pmu('with-guest', '0x8', 'all')
    origins = carried.chunk('load.xenprof').origins()
    told = carried.json('load-report.out')['origins']
    need({name: told[name] for name in origins} == dict(origins), f'the report has {told}, the chunk {dict(origins)}')
    for origin in 'dom0_user', 'dom0_kernel', 'xen_for_dom0', 'guest_kernel', 'guest_user':
        need(origins[origin], f'no sample is {origin}: {dict(origins)}')
    need(origins['xen_for_guest'] + origins['xen_idle'], f'neither xen_for_guest nor xen_idle: {dict(origins)}')


@scenario('lab/every-format-is-written-inside')
def _(carried):
    carried.succeeded('load-folded', 'load-text', 'load-html', 'load-pprof')
    with gzip.open(carried.path('load.pprof')) as file:
        need(b'lstar_enter' in file.read(), 'the pprof export has no lstar_enter')
    need('</html>' in carried.text('load.html'), 'the page has no end')
    need('lstar_enter' in carried.text('load.text') or 'xen_for_dom0' in carried.text('load.text'),
         'the text export has nothing of Xen')


@scenario('lab/chunk-read-outside-agrees-with-what-was-read-inside')
def _(carried):
    chunk = carried.chunk('load.xenprof')
    carried.xenprofctl('verify', carried.path('load.xenprof'))
    outside = carried.xenprofctl('export', '--format', 'folded', '-o', '-', carried.path('load.xenprof'))
    inside = carried.text('load.folded')
    need(sorted(outside.splitlines()) == sorted(inside.splitlines()), 'the folded stacks differ')
    total = sum(count for _, count in folded_lines(inside))
    need(total == len(chunk.samples), f'{len(chunk.samples)} samples in the chunk, {total} in the folded stacks')
    need(chunk.mode == 'xen stacks', f'the mode is {chunk.mode}: {chunk.mode_reason}')
    need(chunk.vpmu == 'all', f'the vPMU is given as {chunk.vpmu!r}')
    need(chunk.xen_build_id.hex() == '8f133dbbefb30be6309f0430a5019e381951f1d6',
         f'Xen has build id {chunk.xen_build_id.hex()!r} {chunk.xen_unavailable}')
    need(chunk.pinned == [1, 2], f'pinning is {chunk.pinned} {chunk.xen_unavailable}')


def xen_stacks(chunk):
    """(origin, samples, [(frame index, is leaf)] leaf first) of the Xen part of each stack that has one."""
    counts = {}
    for sample in chunk.samples:
        counts[sample.stack] = counts.get(sample.stack, 0) + 1
    for index, count in counts.items():
        stack = chunk.stacks[index]
        part = [(frame, at == 0) for at, frame in enumerate(stack.frames) if chunk.kind(frame) == 'hypervisor']
        if part:
            yield stack.origin, count, part


@scenario('lab/xen-frames-have-their-names')
def _(carried):
    chunk, symbols = carried.chunk('load.xenprof'), carried.xen_symbols()
    total = named = 0
    wrong = []
    for _, count, part in xen_stacks(chunk):
        for frame, is_leaf in part:
            total += count
            name = chunk.name(frame, is_leaf)
            if not name:
                continue
            named += count
            address = chunk.frames[frame].address - (0 if is_leaf else 1)
            if name not in symbols.at(address):
                wrong.append(f'{address:#x} is {name}, nm says {sorted(symbols.at(address))}')
    need(total >= 200, f'only {total} Xen frames')
    need(not wrong, f'{len(wrong)} names differ from nm: {"; ".join(wrong[:3])}')
    need(named >= 0.95 * total, f'{named} of {total} Xen frames have names')


@scenario('lab/hypercall-path-is-right')
def _(carried):
    chunk, symbols = carried.chunk('load.xenprof'), carried.xen_symbols()
    deep = right = 0
    hypercalls = {}
    for origin, count, part in xen_stacks(chunk):
        if origin != 'xen_for_dom0' or len(part) < 3:
            continue
        path = [symbols.at(chunk.frames[frame].address - (0 if is_leaf else 1)) for frame, is_leaf in reversed(part)]
        if 'pv_hypercall' not in path[0] | path[1]:
            continue  # an interrupt or a fault, not a hypercall
        deep += count
        at = 1 if 'pv_hypercall' in path[1] else 0
        if at == 1 and 'lstar_enter' in path[0]:
            right += count
            for name in path[2]:
                hypercalls[name] = hypercalls.get(name, 0) + count
    need(deep >= 20, f'only {deep} samples below a hypercall')
    need(right >= 0.95 * deep, f'{right} of {deep} hypercall stacks begin with lstar_enter, pv_hypercall')
    # Which hypercalls a minute of load happens to be caught in is chance; that they are hypercalls is not.
    called = {name for name in hypercalls if name.startswith(('do_', 'hypercall_'))}
    need(len(called) >= 3,
         f'the functions below pv_hypercall are {sorted(hypercalls, key=hypercalls.get, reverse=True)[:8]}')
    inside = sum(count for name, count in hypercalls.items() if name in called)
    need(inside >= 0.5 * right, f'{inside} of {right} hypercall stacks go on into a hypercall')


TRACE = re.compile(r'\(XEN\)\s+\[<([0-9a-f]{16})>\] ([RFS]) (?:[\w./-]+#)?([\w.$]+)\+(0x[0-9a-f]+|0)/(0x[0-9a-f]+)')


@scenario('lab/addresses-agree-with-xens-own-trace')
def _(carried):
    symbols = carried.xen_symbols()
    traced = {}
    for address, kind, name, offset, _ in TRACE.findall(carried.console()):
        address = int(address, 16)
        start = address - int(offset, 16)
        need(name in symbols.at(start), f'Xen prints {name} for {address:#x}, nm has {sorted(symbols.at(start))}')
        # R is where the CPU was; the rest are return addresses, and so are ours.
        traced.setdefault(address, (kind == 'R', name))
    need(len(traced) >= 4, f"Xen's 'd' key printed {len(traced)} addresses of its own")
    chunk = carried.chunk('load.xenprof')
    common = set()
    for _, _, part in xen_stacks(chunk):
        for frame, is_leaf in part:
            address = chunk.frames[frame].address
            if address in traced and traced[address][0] == is_leaf:
                name = chunk.name(frame, is_leaf)
                # Past the end of a function that never returns, Xen names the next one.
                need(name in (traced[address][1], *symbols.at(address - (0 if is_leaf else 1))),
                     f'{address:#x} is {name} in the chunk, {traced[address][1]} in the trace')
                common.add(address)
    need(len(common) >= 3, f'only {len(common)} of {len(traced)} traced addresses are in the chunk')


@scenario('lab/sigkill-puts-foreign-values-back')
def _(carried):
    carried.expect_pmu('odd', '0x4', 'hv')
    carried.succeeded('odd-start')
    carried.expect_pmu('odd-started', '0xc', 'all')
    state = carried.text('killed.state').strip()
    need(state in ('auto-restart', 'failed', 'dead'), f'the unit was {state} when looked at')
    carried.expect_pmu('killed', '0x4', 'hv')


@scenario('lab/restart-and-stop-after-sigkill')
def _(carried):
    carried.succeeded('restart')
    carried.expect_pmu('restarted', '0xc', 'all')
    carried.succeeded('odd-stop')
    carried.expect_pmu('odd-stopped', '0x4', 'hv')


@scenario('lab/chunk-cut-by-sigkill-is-recovered')
def _(carried):
    need('.partial' in carried.text('state-before-kill.txt'), 'nothing was being written when it was killed')
    carried.succeeded('verify', 'list')
    files = []
    for folder, _, names in os.walk(carried.path('state')):
        need(not [name for name in names if name.endswith('.partial')], f'partial files are left: {names}')
        files += [os.path.join(folder, name) for name in names if name.endswith('.xenprof')]
    need(len(files) >= 3, f'{len(files)} chunks in the state folder')
    carried.xenprofctl('verify', *files)
    for file in files:
        need(carried.chunk(file).sealed, f'{file} is not sealed')


@scenario('lab/boot-unit-sets-all')
def _(carried):
    carried.succeeded('boot-unit')
    carried.expect_pmu('boot-unit', '0x8', 'all')


@scenario('lab/doctor-finds-nothing-wrong')
def _(carried):
    first = carried.doctor()[0]
    need(first['severity'] not in ('warning', 'error'), f'{first["id"]}: {first["found"]}')
    carried.expect_pmu('doctored', '0x0', 'self')


if __name__ == '__main__':
    main()
