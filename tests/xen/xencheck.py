"""What the check.py of each boot shares: named scenarios over a folder of carried-out files."""
import argparse
import bisect
import json
import lzma
import os
import re
import subprocess
import sys
import tempfile

_scenarios = []


class Failed(Exception):
    pass


def scenario(name):
    """The function takes a Carried and raises Failed with a reason; any other exception is a failure too."""
    def add(function):
        _scenarios.append((name, function))
        return function
    return add


def need(condition, reason):
    if not condition:
        raise Failed(reason)


class Carried:
    def __init__(self, arguments):
        self.folder, self.console_path = arguments.folder, arguments.console
        self.build, self.lab = arguments.build, arguments.lab

    def path(self, name):
        return os.path.join(self.folder, name)

    def text(self, name):
        try:
            with open(self.path(name), encoding='utf-8', errors='replace') as file:
                return file.read()
        except FileNotFoundError:
            raise Failed(f'{name} was not carried out') from None

    def console(self):
        with open(self.console_path, encoding='utf-8', errors='replace') as file:
            return file.read().replace('\r', '')

    def journal(self, unit=None):
        """The journal's lines; with a unit's program name, only what that program said."""
        lines = self.text('journal.txt').splitlines()
        return [line for line in lines if unit is None or re.search(rf' {re.escape(unit)}\[\d+\]: ', line)]

    def succeeded(self, *names):
        for name in names:
            status = self.text(f'{name}.status').strip()
            if status != '0':
                error = (self.text(f'{name}.err') + self.text(f'{name}.out')).strip().splitlines()
                raise Failed(f'{name} ended with {status}: {error[0] if error else "no message"}')

    def json(self, name):
        try:
            return json.loads(self.text(name))
        except json.JSONDecodeError as error:
            raise Failed(f'{name} is no JSON: {error}') from None

    def pmu(self, name):
        """(features, mode) as read at that point."""
        lines = self.text(f'{name}.pmu').split('\n')
        return lines[0], lines[1]

    def expect_pmu(self, name, features, mode):
        found = self.pmu(name)
        need(found == (features, mode), f'{name}: features and mode are {" ".join(found)}, not {features} {mode}')

    def doctor(self):
        """Findings as `doctor --json` gave them, after a look at what it printed for people."""
        found = self.json('doctor-json.out')['findings']
        need(found, 'doctor has no findings')
        worst = any(finding['severity'] in ('warning', 'error') for finding in found)
        for name in 'doctor', 'doctor-json':
            status = self.text(f'{name}.status').strip()
            need(status == ('1' if worst else '0'), f'{name} ended with {status}: {self.text(f"{name}.err").strip()}')
        printed = self.text('doctor.out')
        need(found[0]['title'] in printed.split('\n\n')[0], f'the text begins otherwise: {printed[:80]!r}')
        return found

    def doctor_names(self, finding, *words):
        """The first finding is this one, is a fault, has these words in it and a remedy."""
        first = self.doctor()[0]
        need(first['id'] == finding, f'the first finding is {first["id"]}: {first["found"]}')
        need(first['severity'] in ('warning', 'error'), f'{finding} is only {first["severity"]}')
        for word in words:
            need(word in json.dumps(first, ensure_ascii=False), f'{word!r} is not in {first}')
        need(first['why'] and (first['commands'] or first['advice']), f'no reason or remedy: {first}')

    def xenprofctl(self, *arguments):
        """Runs the build's own xenprofctl here, outside; its standard output."""
        program = os.path.join(self.build, 'client', 'xenprofctl')
        done = subprocess.run([program, *arguments], capture_output=True, timeout=120, check=False)
        if done.returncode:
            raise Failed(f'xenprofctl {" ".join(arguments)} ended with {done.returncode}: '
                         f'{done.stderr.decode(errors="replace").strip()}')
        return done.stdout.decode('utf-8', 'replace')

    def chunk(self, name):
        import chunkread
        self.text_exists(name)
        try:
            return chunkread.Chunk(self.path(name))
        except chunkread.ChunkError as error:
            raise Failed(f'{name}: {error}') from None

    def text_exists(self, name):
        need(os.path.exists(self.path(name)), f'{name} was not carried out')

    def xen_symbols(self):
        """The lab's xen-syms as `nm` tells it."""
        with lzma.open(os.path.join(self.lab, 'xen-syms.xz')) as packed, tempfile.NamedTemporaryFile() as plain:
            plain.write(packed.read())
            plain.flush()
            return SymbolTable(subprocess.run(['nm', '-n', plain.name], capture_output=True, check=True,
                                              text=True).stdout)

    def kernel_symbols(self):
        return SymbolTable(self.text('kallsyms'))


class SymbolTable:
    """Functions of `nm -n` or kallsyms: `address type name`."""

    def __init__(self, text):
        entries = [line.split()[:3] for line in text.splitlines()]
        self.entries = sorted((int(address, 16), name) for address, kind, name in
                              (entry for entry in entries if len(entry) == 3) if kind in 'tTwW')
        self.starts = [address for address, _ in self.entries]
        self.names = {name for _, name in self.entries}

    def at(self, address):
        """All names that begin where the function around `address` begins."""
        index = bisect.bisect_right(self.starts, address) - 1
        if index < 0:
            return set()
        start = self.starts[index]
        return {name for _, name in self.entries[bisect.bisect_left(self.starts, start):index + 1]}


def folded_lines(text):
    """(frames root first, count) of each line."""
    out = []
    for line in text.splitlines():
        stack, _, count = line.rpartition(' ')
        need(stack and count.isdigit(), f'no folded line: {line[:80]!r}')
        out.append((stack.split(';'), int(count)))
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--list', action='store_true')
    parser.add_argument('folder', nargs='?')
    parser.add_argument('--console')
    parser.add_argument('--build')
    parser.add_argument('--lab')
    arguments = parser.parse_args()
    if arguments.list:
        for name, _ in _scenarios:
            print(name)
        return
    carried = Carried(arguments)
    for name, function in _scenarios:
        try:
            function(carried)
            print(f'ok {name}', flush=True)
        except Failed as failure:
            print(f'not ok {name} - {failure}', flush=True)
        except Exception as error:  # a check that breaks is a failed check
            print(f'not ok {name} - {type(error).__name__}: {error}', flush=True)
            print(name, file=sys.stderr)
            sys.excepthook(type(error), error, error.__traceback__)
