#!/usr/bin/env python3
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
from xencheck import main, need, scenario  # noqa: E402


@scenario('stock/collection-goes-on-by-cpu-clock')
def _(carried):
    carried.expect_pmu('boot', '0x0', 'self')
    carried.succeeded('start', 'ten-snapshot', 'ten-folded', 'ten-report')
    chunk = carried.chunk('ten.xenprof')
    need(chunk.event == 'cpu-clock', f'the event is {chunk.event}')
    need(len(chunk.samples) >= 500, f'only {len(chunk.samples)} samples')
    origins = chunk.origins()
    need(origins['dom0_user'] and origins['dom0_kernel'], f'origins are {dict(origins)}')
    need(set(origins) <= {'dom0_user', 'dom0_kernel', 'unknown'}, f'a software clock cannot see {dict(origins)}')
    # This kernel takes the timer's samples for a guest's; their addresses are dom0's all the same.
    named = sum(bool(chunk.name(chunk.stacks[sample.stack].frames[0], True)) for sample in chunk.samples
                if chunk.stacks[sample.stack].origin == 'dom0_kernel' and chunk.stacks[sample.stack].frames)
    need(named >= 0.9 * origins['dom0_kernel'], f'{named} of {origins["dom0_kernel"]} kernel samples have a name')
    need('vpmu=' in carried.text('status.out'), 'status does not say why there are no callers')
    carried.xenprofctl('verify', carried.path('ten.xenprof'))


@scenario('stock/profile-says-dom0-only')
def _(carried):
    chunk = carried.chunk('ten.xenprof')
    need(chunk.mode == 'dom0 only', f'the mode is {chunk.mode}: {chunk.mode_reason}')
    for name in 'ten-report-text.out', 'ten-report.out', 'status.out', 'status-json.out':
        need('dom0 only' in carried.text(name).replace('_', ' '), f'{name} does not say `dom0 only`')


@scenario('stock/refused-bit-3-is-recognised')
def _(carried):
    log = '\n'.join(carried.journal('xenprofd'))
    need('hypervisor stacks' in log, 'the log does not say that this Xen has no hypervisor stacks')
    need(carried.pmu('started')[0] == '0x0', f'features are {carried.pmu("started")[0]}')
    carried.succeeded('stop')
    carried.expect_pmu('stopped', '0x0', 'self')
    need(not carried.text('failed.out').strip(), f'failed units: {carried.text("failed.out").strip()}')


@scenario('stock/doctor-names-the-missing-pmu-and-stacks')
def _(carried):
    carried.doctor_names('pmu', 'cpu-clock')
    stacks = next(finding for finding in carried.doctor() if finding['id'] == 'xen_stacks')
    need(stacks['severity'] != 'ok' and 'bit 3' in stacks['found'], f'xen_stacks: {stacks}')
    carried.expect_pmu('doctored', '0x0', 'self')


if __name__ == '__main__':
    main()
