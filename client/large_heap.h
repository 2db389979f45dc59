// Memory for commands that hold whole chunks.
#ifndef CLIENT_LARGE_HEAP_H_
#define CLIENT_LARGE_HEAP_H_

namespace xenprof::client {

// From now on this process's heap grows in large steps, of huge pages where the kernel has them, and keeps
// what is freed for what comes next: a fault for each 4 KiB would be a quarter of the time of an export, more
// in a guest of a hypervisor. Only advice: nothing depends on it.
void UseLargeHeap();

}  // namespace xenprof::client

#endif  // CLIENT_LARGE_HEAP_H_
