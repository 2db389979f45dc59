// The hot path on fixed images, for a tool that counts instructions: only CountedPass is to be counted.
#include <cstdio>
#include <cstring>

#include "hot_path.h"

extern "C" __attribute__((noinline)) bool CountedPass(xenprof::bench::HotPath* path) {
  return path->Run().ok();
}

int main(int argc, char** argv) {
  using namespace xenprof::bench;
  Shape shape;
  shape.samples = 32768;
  const char* name = argc == 2 ? argv[1] : "";
  if (std::strcmp(name, "hot_stacks") == 0) {
    shape.distinct = 1000;
  } else if (std::strcmp(name, "rare_stacks") == 0) {
    shape.distinct = 100000;
    shape.rings = 16;
  } else {
    std::fprintf(stderr, "usage: hot_path_count hot_stacks|rare_stacks\n");
    return 2;
  }
  Synthetic image(shape);
  TemporaryFolder folder;
  HotPath path(&image, folder.File("count.xenprof"));
  if (!path.Prepare().ok() || !CountedPass(&path)) {
    std::fprintf(stderr, "the pass failed\n");
    return 1;
  }
  std::printf("%d samples\n", image.samples());
  return 0;
}
