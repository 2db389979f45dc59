#include "xenprof/export/deflate.h"

#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace xenprof::exporter {

absl::StatusOr<std::string> Deflate(absl::string_view bytes, DeflateFormat format, int level) {
  z_stream stream = {};
  constexpr int kWindowBits = 15;
  const int window_bits = format == DeflateFormat::kGzip ? kWindowBits + 16 : kWindowBits;
  int result = deflateInit2(&stream, level, Z_DEFLATED, window_bits, /*memLevel=*/8, Z_DEFAULT_STRATEGY);
  if (result != Z_OK) return absl::InternalError(absl::StrCat("zlib: ", zError(result)));
  std::string out;
  // zlib counts in 32 bits: large buffers go in pieces.
  constexpr size_t kPiece = size_t{1} << 24;
  size_t consumed = 0, produced = 0;
  do {
    const size_t piece = std::min(kPiece, bytes.size() - consumed);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data())) + consumed;
    stream.avail_in = static_cast<uInt>(piece);
    consumed += piece;
    const int flush = consumed == bytes.size() ? Z_FINISH : Z_NO_FLUSH;
    do {
      if (out.size() - produced < (size_t{1} << 15)) out.resize(std::max(out.size() * 2, size_t{1} << 16));
      const size_t room = std::min(out.size() - produced, kPiece);
      stream.next_out = reinterpret_cast<Bytef*>(out.data()) + produced;
      stream.avail_out = static_cast<uInt>(room);
      result = deflate(&stream, flush);
      produced += room - stream.avail_out;
    } while (stream.avail_out == 0);
  } while (consumed < bytes.size());
  deflateEnd(&stream);
  if (result != Z_STREAM_END) return absl::InternalError(absl::StrCat("zlib: ", zError(result)));
  out.resize(produced);
  return out;
}

}  // namespace xenprof::exporter
