"""Examination of files to be decoded together, before a graph is built.

For example:

    report = examine(tokens="tokens.txt", lexicon="lexicon.txt", lm="lm.arpa",
                     logprobs="dev.npz", ref="dev.txt")
    print(report)                          # a page, with commands at its end
    report.is_wrong, report["blank"].text
"""

from wfstdec.doctor.examine import Finding, Report, examine

__all__ = ["Finding", "Report", "examine"]
