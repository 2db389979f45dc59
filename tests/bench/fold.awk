# `perf script -F comm,pid,tid,time,ip,sym,dso` on standard input, folded stacks on standard output: the folding step a user
# puts behind perf script. One line per sample's stack, root first, then a count.
/^#/ { next }
/^[^ \t]/ { comm = $1; depth = 0; open = 1; next }
/^$/ {
  if (open) {
    line = comm
    for (i = depth; i > 0; i--) line = line ";" frame[i]
    count[line]++
    open = 0
  }
  next
}
{
  name = $2
  sub(/\+0x[0-9a-f]+$/, "", name)
  frame[++depth] = name
}
END {
  if (open) {
    line = comm
    for (i = depth; i > 0; i--) line = line ";" frame[i]
    count[line]++
  }
  for (line in count) print line, count[line]
}
