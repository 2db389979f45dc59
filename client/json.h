// The commands' JSON writer is the library's: JsonString and JsonWriter are found from namespace
// xenprof::client.
#ifndef CLIENT_JSON_H_
#define CLIENT_JSON_H_

#include "xenprof/base/json.h"  // IWYU pragma: export

#endif  // CLIENT_JSON_H_
