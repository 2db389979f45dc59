#include "xenprof/chunk/payload_parser.h"

#include <google/protobuf/stubs/common.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "xenprof/chunk/envelope.h"

namespace xenprof::chunk {
namespace {

// Numbers of every length, the extremes among them.
class Numbers {
 public:
  template <typename T>
  void Add(google::protobuf::RepeatedField<T>* column, int count) {
    for (int i = 0; i < count; ++i) column->Add(static_cast<T>(random_() >> random_() % 64));
    column->Add(std::numeric_limits<T>::min());
    column->Add(std::numeric_limits<T>::max());
  }

 private:
  std::mt19937_64 random_{1};
};

proto::Payload Everything() {
  proto::Payload payload;
  proto::Block* block = payload.mutable_block();
  block->set_start_ns(5);
  block->set_realtime_offset_ns(-7);
  Numbers numbers;
  proto::Dictionary* d = block->mutable_dictionary();
  d->set_first_node(3);
  d->add_mappings()->set_name("m");
  d->add_tasks()->set_comm("t");
  d->add_domains()->set_name("d");
  numbers.Add(d->mutable_frame_mapping(), 40);
  numbers.Add(d->mutable_frame_address(), 40);
  numbers.Add(d->mutable_node_parent(), 40);
  numbers.Add(d->mutable_node_frame(), 40);
  numbers.Add(d->mutable_stack_leaf(), 40);
  numbers.Add(d->mutable_stack_kind(), 40);
  for (int cpu = 0; cpu < 2; ++cpu) {
    proto::CpuSamples* samples = block->add_cpus();
    samples->set_cpu(cpu);
    samples->set_time_low("low");
    numbers.Add(samples->mutable_time_step(), 40);
    numbers.Add(samples->mutable_stack(), 40);
    numbers.Add(samples->mutable_task_runs(), 40);
    numbers.Add(samples->mutable_domain_runs(), 40);
  }
  block->add_incidents()->set_text("i");
  block->add_cpu_time()->set_sampled_ns(9);
  return payload;
}

// What protobuf makes of `bytes` we make of them, too.
void ExpectSame(const std::string& bytes) {
#if GOOGLE_PROTOBUF_VERSION < 4022000
  const google::protobuf::LogSilencer silencer;
#endif
  proto::Payload expected, got;
  got.mutable_trailer()->set_samples(1);  // goes
  const bool good = expected.ParseFromString(bytes);
  ASSERT_EQ(ParsePayload(bytes, &got).ok(), good);
  if (good) {
    ASSERT_EQ(got.SerializeAsString(), expected.SerializeAsString());
  }
}

// A field of a message: its key, and its length where it has one.
std::string Field(int number, int wire_type, const std::string& value) {
  std::string out;
  AppendVarint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(wire_type), &out);
  if (wire_type == 2) AppendVarint(value.size(), &out);
  return out + value;
}

TEST(PayloadParser, MakesOfItWhatProtobufDoes) {
  const std::string block = Everything().SerializeAsString();
  ExpectSame(block);
  ExpectSame(block + block);  // parts are put together
  proto::Payload other;
  other.mutable_header()->set_magic("x");
  ExpectSame(other.SerializeAsString());
  ExpectSame(block + other.SerializeAsString());
  ExpectSame(other.SerializeAsString() + block);
  ExpectSame("");
  ExpectSame(Field(99, 2, "a field of a later version") + block);
}

TEST(PayloadParser, TakesColumnsNumberByNumber) {
  const std::string column = Field(13, 0, "\x81\x01") + Field(13, 2, "\x05\x06") + Field(13, 0, "\x07");
  ExpectSame(Field(2, 2, Field(4, 2, column)));
  ExpectSame(Field(2, 2, Field(5, 2, Field(5, 0, "\x03"))));
  ExpectSame(Field(2, 2, Field(4, 2, Field(13, 5, "abcd"))));  // of another type: skipped
}

TEST(PayloadParser, RefusesWhatIsMalformed) {
  const std::string block = Everything().SerializeAsString();
  for (size_t size = 0; size < block.size(); ++size) ExpectSame(block.substr(0, size));
  const auto dictionary = [](const std::string& fields) { return Field(2, 2, Field(4, 2, fields)); };
  ExpectSame(dictionary(Field(13, 2, "\x80")));
  ExpectSame(dictionary(Field(13, 2, std::string(9, '\x80') + '\x01')));
  ExpectSame(dictionary(Field(13, 2, std::string(10, '\x80') + '\x01')));
  proto::Payload payload;
  EXPECT_EQ(ParsePayload(dictionary(Field(13, 2, "\x80")), &payload).message(), "malformed payload");
  EXPECT_EQ(ParsePayload(block, &payload, 3).message(), "payload of more than 3 items");
}

TEST(PayloadParser, SurvivesChangedBytes) {
  const std::string block = Everything().SerializeAsString();
  std::mt19937 random(1);
  for (int i = 0; i < 5'000; ++i) {
    std::string changed = block;
    changed[random() % changed.size()] = static_cast<char>(random());
    proto::Payload payload;
    (void)ParsePayload(changed, &payload);
  }
}

}  // namespace
}  // namespace xenprof::chunk
