#!/usr/bin/env python3
"""Turns the page's files into one C++ source: embed.py OUT NAME=FILE[+FILE...] ..."""
import sys


def literal(data):
    """`data` as adjacent string literals. Octal escapes: a hexadecimal one would swallow digits behind it."""
    lines = []
    for line in data.splitlines(keepends=True):
        text = ''
        for byte in line:
            char = chr(byte)
            if char in '"\\':
                text += '\\' + char
            elif 32 <= byte < 127 and char != '?':  # no trigraphs
                text += char
            else:
                text += '\\%03o' % byte
        lines.append('    "%s"' % text)
    return '\n'.join(lines)


def main():
    with open(sys.argv[1], 'w', encoding='ascii') as out:
        out.write('// Made by embed.py.\n#include "xenprof/export/html_page.h"\n\nnamespace xenprof::exporter {\n')
        for argument in sys.argv[2:]:
            name, files = argument.split('=', 1)
            data = b''
            for file in files.split('+'):
                with open(file, 'rb') as source:
                    data += source.read()
            out.write('\nconst char %s[] =\n%s;\nconst unsigned long %sSize = %d;\n' % (name, literal(data), name, len(data)))
        out.write('\n}  // namespace xenprof::exporter\n')


main()
