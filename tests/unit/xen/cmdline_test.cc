#include "xenprof/xen/cmdline.h"

#include <gtest/gtest.h>

namespace xenprof::xen {
namespace {

TEST(XenCommandLine, VpmuIsOffUnlessAskedFor) {
  EXPECT_EQ(ParseXenCommandLine("").vpmu, VpmuOption::kOff);
  EXPECT_FALSE(ParseXenCommandLine("dom0_mem=1G").vpmu_given);
  EXPECT_EQ(ParseXenCommandLine("vpmu=off").vpmu, VpmuOption::kOff);
  EXPECT_TRUE(ParseXenCommandLine("vpmu=off").vpmu_given);
  EXPECT_EQ(ParseXenCommandLine("no-vpmu").vpmu, VpmuOption::kOff);
  EXPECT_EQ(ParseXenCommandLine("vpmu=rubbish").vpmu, VpmuOption::kOff);
}

TEST(XenCommandLine, VpmuValues) {
  for (const char* on : {"vpmu=on", "vpmu=1", "vpmu=true", "vpmu=yes", "vpmu=enable", "vpmu=bts", "vpmu=ipc",
                         "vpmu=arch", "vpmu=on,arch"}) {
    EXPECT_EQ(ParseXenCommandLine(on).vpmu, VpmuOption::kOn) << on;
  }
  EXPECT_EQ(ParseXenCommandLine("vpmu=global").vpmu, VpmuOption::kGlobal);
  EXPECT_EQ(ParseXenCommandLine("vpmu=hvm").vpmu, VpmuOption::kGuests);
}

TEST(XenCommandLine, LaterOptionsWin) {
  EXPECT_EQ(ParseXenCommandLine("vpmu=on watchdog vpmu=off").vpmu, VpmuOption::kOff);
  EXPECT_FALSE(ParseXenCommandLine("watchdog watchdog=0").watchdog);
  EXPECT_TRUE(ParseXenCommandLine("watchdog=0 watchdog=1").watchdog);
  EXPECT_FALSE(ParseXenCommandLine("dom0_vcpus_pin dom0_vcpus_pin=0").dom0_vcpus_pin);
}

TEST(XenCommandLine, Watchdog) {
  EXPECT_FALSE(ParseXenCommandLine("nowatchdog").watchdog);  // an option of Linux, not of Xen
  EXPECT_TRUE(ParseXenCommandLine("watchdog").watchdog);
  EXPECT_TRUE(ParseXenCommandLine("watchdog=force").watchdog);
  EXPECT_TRUE(ParseXenCommandLine("watchdog_timeout=10").watchdog);
  EXPECT_FALSE(ParseXenCommandLine("watchdog watchdog_timeout=0").watchdog);
  EXPECT_FALSE(ParseXenCommandLine("watchdog no-watchdog").watchdog);
}

TEST(XenCommandLine, Dom0) {
  const XenOptions options = ParseXenCommandLine("  dom0=pvh\tdom0_max_vcpus=1-4  dom0_vcpus_pin ");
  EXPECT_EQ(options.dom0, "pvh");
  EXPECT_EQ(options.dom0_max_vcpus, "1-4");
  EXPECT_TRUE(options.dom0_vcpus_pin);
}

}  // namespace
}  // namespace xenprof::xen
