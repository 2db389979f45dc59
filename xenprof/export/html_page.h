// The files of xenprof/export/html, embedded at build time.
#ifndef XENPROF_EXPORT_HTML_PAGE_H_
#define XENPROF_EXPORT_HTML_PAGE_H_

namespace xenprof::exporter {

extern const char kPageHtml[];  // with {{title}}, {{css}}, {{data}}, {{js}} to be filled in
extern const unsigned long kPageHtmlSize;
extern const char kPageCss[];
extern const unsigned long kPageCssSize;
extern const char kPageJs[];
extern const unsigned long kPageJsSize;

}  // namespace xenprof::exporter

#endif  // XENPROF_EXPORT_HTML_PAGE_H_
