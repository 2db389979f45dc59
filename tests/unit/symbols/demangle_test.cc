#include "xenprof/symbols/demangle.h"

#include <ctime>

#include "gtest/gtest.h"

namespace xenprof::symbols {
namespace {

TEST(Demangle, LeavesOtherNamesAlone) {
  for (const char* name :
       {"main", "_start", "_R", "_Z", "_ZN", "do_syscall_64", "foo.isra.0", "_Zygote", "_Ready", ""}) {
    EXPECT_EQ(Demangle(name), name);
  }
}

TEST(Demangle, Cpp) {
  EXPECT_EQ(Demangle("_ZNSt6vectorIiSaIiEE9push_backERKi"),
            "std::vector<int, std::allocator<int> >::push_back(int const&)");
  EXPECT_EQ(Demangle("_ZN12_GLOBAL__N_16HiddenEi"), "(anonymous namespace)::Hidden(int)");
  EXPECT_EQ(Demangle("_ZN3FooC1Ev"), "Foo::Foo()");
  EXPECT_EQ(Demangle("_ZTV3Foo"), "vtable for Foo");
  EXPECT_EQ(Demangle("_Z3foov.cold"), "foo() [clone .cold]");
}

TEST(Demangle, CppNamesThatExplodeAreAbridged) {
  // f(pair<X,X>) where X is a pair of pairs of ...: a hundred letters that spell gigabytes.
  std::string bomb = "_Z1f";
  bomb += "1PIiiE";
  for (int i = 0; i < 40; ++i) {
    const std::string reference =
        i == 0 ? "S0_" : std::string("S") + "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i % 36] + "_";
    bomb += "S_I" + reference + reference + reference + "E";
  }
  const std::clock_t start = std::clock();
  const std::string plain = Demangle(bomb);
  EXPECT_LT(plain.size(), size_t{1} << 20);
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
}

// What rustc 1.95 wrote for a small program, with both manglings.
TEST(Demangle, RustLegacy) {
  EXPECT_EQ(Demangle("_ZN4core3ptr13drop_in_place17h9b1d4c6d3ad5ee48E"), "core::ptr::drop_in_place");
  EXPECT_EQ(
      Demangle("_ZN61_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..fmt..Debug$GT$3fmt17h0123456789abcdefE"),
      "<alloc::vec::Vec<T> as core::fmt::Debug>::fmt");
  EXPECT_EQ(Demangle("_ZN1r13gr$uf6$$udf$e9l$ue4$nge17h4ea56aaa72c7c11aE"), "r::größe::länge");
  EXPECT_EQ(Demangle("_ZN3foo3bar28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE.llvm.8ABCDEF012345678"),
            "foo::bar::{{closure}}");
  EXPECT_EQ(Demangle("_ZN3foo3bar17h0123456789abcdefE.cold"), "foo::bar.cold");
}

TEST(Demangle, CppThatLooksLikeRustIsCpp) {
  EXPECT_EQ(Demangle("_ZN3foo17h0123456789abcdegE"), "foo::h0123456789abcdeg");
}

TEST(Demangle, RustV0) {
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r2apNCNCNvB2_4main00EB2_"),
            "r::ap::<r::main::{closure#0}::{closure#0}>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3genAAtj3_j2_EB2_"), "r::gen::<[[u16; 3]; 2]>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3genFG_RL0_eRL0_ShERL0_eEB2_"),
            "r::gen::<for<'a> fn(&'a str, &'a [u8]) -> &'a str>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3genFKClElEB2_"), "r::gen::<extern \"C\" fn(i32) -> i32>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3genINtNtCsgEmfK2I1SDS_4core6option6OptionFUPhOxEzEEB2_"),
            "r::gen::<core::option::Option<unsafe fn(*const u8, *mut i64) -> !>>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3genRDG_INtNtNtCsgEmfK2I1SDS_4core3ops8function2FnTRL0_"
                     "hEEp6OutputRL0_hEL_EB2_"),
            "r::gen::<&dyn for<'a> core::ops::function::Fn<(&'a u8,), Output = &'a u8>>");
  EXPECT_EQ(Demangle("_RINvCs6GmmlP4bgsG_1r3tupThEEB2_"), "r::tup::<(u8,)>");
  EXPECT_EQ(Demangle("_RNvMs_Cs6GmmlP4bgsG_1rINtB4_3NegKan5_Kb1_Kc78_E2goB4_"),
            "<r::Neg<-5, true, 'x'>>::go");
  EXPECT_EQ(Demangle("_RNvMs_Cs6GmmlP4bgsG_1rINtB4_3NegKa5_Kb0_Kce4_E2goB4_"), "<r::Neg<5, false, 'ä'>>::go");
  EXPECT_EQ(Demangle("_RNvNtCs6GmmlP4bgsG_1ru9gre_6ka8iu8lnge_loa"), "r::größe::länge");
  EXPECT_EQ(Demangle("_RNvXCs6GmmlP4bgsG_1rINtB2_2SqKj3_ENtB2_5Shape4areaB2_"),
            "<r::Sq<3> as r::Shape>::area");
  EXPECT_EQ(Demangle("_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtCslNYArtu3iFV_"
                     "5alloc5boxed3BoxDNtNtNtNtB4_4iter6traits8iterator8Iteratorp4ItemThNtNtBL_"
                     "6string6StringENtNtB4_6marker4SendEL_EECs6GmmlP4bgsG_1r"),
            "core::ptr::drop_in_place::<alloc::boxed::Box<dyn core::iter::traits::iterator::Iterator<Item = "
            "(u8, alloc::string::String)> + core::marker::Send>>");
  EXPECT_EQ(
      Demangle("_RNSNvYNCINvMs0_NtNtCsjrHSEGnQ3l9_3std4sync4onceNtBd_4Once15call_once_forceNCINvMNtBf_9once_"
               "lockINtB1g_8OnceLockINtNtBf_14reentrant_lock13ReentrantLockINtNtCsgEmfK2I1SDS_"
               "4core4cell7RefCellINtNtNtNtBh_2io8buffered10linewriter10LineWriterNtNtB36_"
               "5stdio9StdoutRawEEEE10initializeNCINvB1f_11get_or_initNCNvB3N_6stdout0E0zE0E0INtNtNtB2t_"
               "3ops8function6FnOnceTRNtBd_9OnceStateEE9call_once6vtableBh_"),
      "<<std::sync::once::Once>::call_once_force<<std::sync::once_lock::OnceLock<std::sync::reentrant_lock::"
      "ReentrantLock<core::cell::RefCell<std::io::buffered::linewriter::LineWriter<std::io::stdio::StdoutRaw>"
      ">>>>::initialize<<std::sync::once_lock::OnceLock<std::sync::reentrant_lock::ReentrantLock<core::cell::"
      "RefCell<std::io::buffered::linewriter::LineWriter<std::io::stdio::StdoutRaw>>>>>::get_or_init<std::io:"
      ":stdio::stdout::{closure#0}>::{closure#0}, !>::{closure#0}>::{closure#0} as "
      "core::ops::function::FnOnce<(&std::sync::once::OnceState,)>>::call_once::{shim:vtable#0}");
  EXPECT_EQ(Demangle("_RINvMNtCsgEmfK2I1SDS_4core3stre18trim_start_matchesReECsgY6Mt91CT9J_14rustc_demangle"),
            "<str>::trim_start_matches::<&str>");
  EXPECT_EQ(Demangle("_RNvCsfLfy6EI15iL_7___rustc10rust_panic"), "__rustc::rust_panic");
  EXPECT_EQ(Demangle("_RNvXNtNtCsjrHSEGnQ3l9_3std2io5errorNtB2_5ErrorNtNtCsgEmfK2I1SDS_4core3fmt5Debug3fmt"),
            "<std::io::error::Error as core::fmt::Debug>::fmt");
  EXPECT_EQ(Demangle("_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtB4_4cell10UnsafeCellINtNtB4_"
                     "6option6OptionINtNtB4_6result6ResultlINtNtCslNYArtu3iFV_5alloc5boxed3BoxDNtNtB4_"
                     "3any3AnyNtNtB4_6marker4SendEL_EEEEECs6GmmlP4bgsG_1r"),
            "core::ptr::drop_in_place::<core::cell::UnsafeCell<core::option::Option<core::result::Result<i32,"
            " alloc::boxed::Box<dyn core::any::Any + core::marker::Send>>>>>");
}

TEST(Demangle, RustV0ThatIsDamagedComesBackAsItIs) {
  const std::string whole = "_RINvCs6GmmlP4bgsG_1r2apNCNCNvB2_4main00EB2_";
  ASSERT_NE(Demangle(whole), whole);
  for (size_t size = 2; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    Demangle(cut);  // must only end, with whatever
    for (char c : {'B', 'I', '_', '9', 'N'}) Demangle(cut + c + whole.substr(size + 1));
  }
  // A reference to itself, and nesting without end.
  EXPECT_EQ(Demangle("_RB_"), "_RB_");
  EXPECT_EQ(Demangle("_RNvB_1a"), "_RNvB_1a");
  const std::string deep = "_R" + std::string(5000, 'M');
  EXPECT_EQ(Demangle(deep), deep);
  std::string wide = "_RINvC1a1f";
  for (int i = 0; i < 60; ++i) wide += "TB8_B8_B8_B8_E";
  EXPECT_LT(Demangle(wide + "E").size(), size_t{1} << 20);
}

}  // namespace
}  // namespace xenprof::symbols
