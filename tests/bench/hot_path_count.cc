// The hot path on fixed images, for a tool that counts instructions: only CountedPass is to be counted.
#include <cstdio>
#include <cstdlib>

#include "hot_path.h"

extern "C" __attribute__((noinline)) bool CountedPass(xenprof::bench::HotPath* path) {
  return path->Run().ok();
}

int main(int argc, char** argv) {
  using namespace xenprof::bench;
  if (argc != 5) {
    std::fprintf(stderr, "usage: hot_path_count DEPTH DISTINCT RINGS SAMPLES\n");
    return 2;
  }
  Shape shape;
  shape.depth = std::atoi(argv[1]);
  shape.distinct = std::atoi(argv[2]);
  shape.rings = std::atoi(argv[3]);
  shape.samples = std::atoi(argv[4]);
  Synthetic image(shape);
  TemporaryFolder folder;
  HotPath path(&image, folder.File("count.xenprof"));
  // The first pass gets memory that later ones find.
  if (!path.Prepare().ok() || !path.Run().ok() || !path.Prepare().ok() || !CountedPass(&path)) {
    std::fprintf(stderr, "the pass failed\n");
    return 1;
  }
  std::printf("%d samples\n", image.samples());
  return 0;
}
