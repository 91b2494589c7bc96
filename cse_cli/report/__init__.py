"""One page about a run or a study, as Markdown or HTML: what a person would attach to a paper."""
