#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('leaf-only/sampled-address-without-callers')
def _(carried):
    carried.succeeded('start', 'ten-snapshot', 'ten-folded', 'ten-report')
    chunk = carried.chunk('ten.xenprof')
    need(chunk.mode == 'xen leaf only', f'the mode is {chunk.mode}: {chunk.mode_reason}')
    seen = 0
    symbols = carried.xen_symbols()
    for sample in chunk.samples:
        stack = chunk.stacks[sample.stack]
        kinds = [chunk.kind(frame) for frame in stack.frames]
        xen = kinds.count('hypervisor')
        need(xen <= 1, f'a stack has {xen} Xen frames')
        if not xen:
            continue
        seen += 1
        need(kinds[0] == 'hypervisor', f'a Xen frame is not the leaf: {kinds}')
        need(stack.origin in ('xen_for_dom0', 'xen_idle', 'unknown'), f'the origin of a Xen leaf is {stack.origin}')
        need('dom0_user' not in kinds or stack.origin == 'xen_for_dom0',
             f'a Xen leaf of origin {stack.origin} carries a dom0 program')
        name = chunk.name(stack.frames[0], True)
        need(name in symbols.at(chunk.frames[stack.frames[0]].address), f'{name} is not what nm says')
    need(seen >= 20, f'only {seen} samples of Xen')


@scenario('leaf-only/stop-puts-it-back')
def _(carried):
    carried.expect_pmu('boot', '0x0', 'self')
    carried.succeeded('stop')
    carried.expect_pmu('stopped', '0x0', 'self')


@scenario('leaf-only/doctor-names-the-kernel')
def _(carried):
    carried.doctor_names('kernel_stacks', 'kernel')
    carried.expect_pmu('doctored', '0x0', 'self')


if __name__ == '__main__':
    main()
