#include "xenprof/base/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "xenprof/base/utf8.h"

namespace xenprof {
namespace {

TEST(JsonTest, WritesNestedValues) {
  JsonWriter json;
  json.BeginObject();
  json.Key("a").Unsigned(18446744073709551615u).Key("b").Signed(-5).Key("c").Bool(true).Key("d").Null();
  json.Key("e").BeginArray().String("x").String("y").EndArray();
  json.Key("f").BeginObject().EndObject().Key("g").Number(0.5).Key("h").Number(std::nan(""));
  json.EndObject();
  EXPECT_EQ(json.Take(),
            "{\n  \"a\": 18446744073709551615,\n  \"b\": -5,\n  \"c\": true,\n  \"d\": null,\n  \"e\": [\n   "
            " \"x\",\n"
            "    \"y\"\n  ],\n  \"f\": {},\n  \"g\": 0.5,\n  \"h\": null\n}\n");
}

TEST(JsonTest, EscapesWhatJsonForbids) {
  EXPECT_EQ(JsonString("a\"b\\c\n\t\x01\x7f"), "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
  EXPECT_EQ(JsonString("\xc3\xa9"), "\"\xc3\xa9\"");
  EXPECT_EQ(JsonString("\xc3"), "\"\\ufffd\"");
}

TEST(Utf8Test, KeepsWhatIsWellFormedAndNothingElse) {
  for (const char* good : {"plain", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(ToUtf8(good), good);
  }
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(ToUtf8("a\xff"
                   "b"),
            "a" + mark + "b");
  EXPECT_EQ(ToUtf8("\xc0\xaf"), mark + mark);                        // overlong
  EXPECT_EQ(ToUtf8("\xed\xa0\x80"), mark + mark + mark);             // a surrogate
  EXPECT_EQ(ToUtf8("\xf4\x90\x80\x80"), mark + mark + mark + mark);  // beyond U+10FFFF
  EXPECT_EQ(ToUtf8("\xe2\x82"), mark + mark);                        // cut off
}

}  // namespace
}  // namespace xenprof
