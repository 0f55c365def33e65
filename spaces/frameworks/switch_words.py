"""Settings of switches in words: as the command line takes them, and as a framework's flags."""

from collections.abc import Mapping

from forerun.spaces.frameworks.switches import Flags


def flag_words(flags: Flags) -> list[str]:
    """Return settings of a framework as they are written on its command line or in its configuration.

    >>> flag_words({"exp_avg_dtype": "bf16", "overlap_param_gather": True, "compile.enable": False})
    ['--exp-avg-dtype bf16', '--overlap-param-gather', 'compile.enable=false']
    """
    words = []
    for name, value in flags.items():
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        shown = " ".join(map(str, value)) if isinstance(value, list | tuple) else shown
        if "." in name or name.isupper():
            words.append(f"{name}={shown}")
        else:
            words.append("--" + name.replace("_", "-") + ("" if value is True else f" {shown}"))
    return words


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as ``--with`` takes them.

    >>> settings_text({"bf16-grads": "on", "dispatcher": "deepep"})
    'bf16-grads, dispatcher=deepep'
    """
    return ", ".join(name if setting == "on" else f"{name}={setting}" for name, setting in settings.items())
