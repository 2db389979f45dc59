// xenprofctl: asks the daemon, reads chunks, writes what people and other programs look at.
#include "client/command.h"

int main(int argc, char** argv) { return xenprof::client::Main(argc, argv); }
