"""A tuning from request to result: search, runs, summary, and the files of its folder."""

from collections.abc import Callable
from pathlib import Path

from forerun.search.board.folder import write_folder
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.files.documents import dump_json
from forerun.search.formats.logs import read_log, stated_step_s
from forerun.search.formats.table import format_named
from forerun.search.report.tune import tune_html
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.search.tune.candidates import TuningCandidates, candidates_of
from forerun.search.tune.folder import SEARCH, STUDY, TuneFolder
from forerun.search.tune.launch_files import LaunchWriter, trainer_text
from forerun.search.tune.loop import Tuner, TuningWatch
from forerun.search.tune.request import TuningRequest
from forerun.search.tune.study import StudyTrials
from forerun.search.tune.summary import TuneSummary, sentences, summarize
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.reading import read_text

RESULT, REPORT = "result.json", "report.html"


def tune(
    tuning: TuningRequest,
    search: Callable[[Setting], Leaderboard],
    watch: TuningWatch,
    opened: Callable[[TuneFolder], None] = lambda _: None,
) -> TuneSummary:
    """Search, launch runs, and write the result.

    Parameters
    ----------
    tuning
        Training to tune, and options.
    search
        Search for the rows among which runs are chosen.
    watch
        Observer that is asked before every launch.
    opened
        Called with the folder once it is open.

    Raises
    ------
    RequestError
        The request is wrong, nothing can be launched, or the folder cannot be used.
    KeyboardInterrupt
        Interrupted, after running runs were ended or left running.
    """
    read_log("", pattern=tuning.log_pattern)  # a wrong pattern ends here, not after a launch
    baseline_s = _baseline_s(tuning)
    if tuning.format_name is not None:
        format_named(tuning.format_name)
    with tuning.launcher as launcher:
        launcher.check()
        candidates = _candidates(tuning, search)
        watch.searched(candidates)
        with TuneFolder(tuning.folder, tuning.inputs(candidates), resume=tuning.resume) as folder:
            opened(folder)
            (folder.path / SEARCH).mkdir(exist_ok=True)
            write_folder(folder.path / SEARCH, candidates.board)
            trials = StudyTrials(folder.path / STUDY, candidates)
            tuner = Tuner(tuning=tuning, folder=folder, candidates=candidates, watch=watch, trials=trials)
            tuner.run()
            summary = summarize(tuner, baseline_s)
            write_text(folder.path / RESULT, dump_json(summary.document) + "\n")
            write_text(folder.path / REPORT, tune_html(summary.document, sentences(summary.document)))
            return summary


def _candidates(tuning: TuningRequest, search: Callable[[Setting], Leaderboard]) -> TuningCandidates:
    """Search, and return the rows that can be launched."""
    setting = of_transformer(resolve(tuning.request))
    writer = LaunchWriter(
        context=setting.context,
        steps=tuning.steps,
        trainer=trainer_text(tuning.trainer),
        format_name=tuning.format_name,
        job=tuning.job,
    )
    return candidates_of(setting, search(setting), writer)


def _baseline_s(tuning: TuningRequest) -> float | None:
    """Return the step time of the user's current run in s, as stated or from its log."""
    if tuning.baseline is None:
        return None
    seconds = stated_step_s(tuning.baseline)
    if seconds is None:
        seconds = read_log(read_text(Path(tuning.baseline)), pattern=tuning.log_pattern).step_s
    if seconds is None:
        raise RequestError(f"--measured {tuning.baseline} has no step times")
    return seconds
