"""Searches side by side on one's own data: WER, speed, search errors, memory.

speech = read_speech("dev.npz", "dev.txt")                  # compare.speech
searches = wfst_searches(graph, options, {"beam": [8, 13]}) # compare.searches
comparison = run(speech, searches)                          # compare.run
print(table(comparison));  plot(comparison, "dev.svg")      # compare.report, .plot
tune(search, speech)                                        # compare.tuning
"""
