"""The paper's experiments: run as cells, judged by intervals, shown as pages.

    suite, cells, result    what there is to run, and what a finished run leaves: the nouns
    reading                 reads experiments/
    work/                   runs the cells that are missing; what is left takes how long
    judge/                  from results to differences, verdicts and costs; pure functions
    gpu/                    what a cell takes on a GPU, without one
    page/                   docs/results.md, RESULTS.md and their pictures

Reading, judging and showing import no torch.
"""
