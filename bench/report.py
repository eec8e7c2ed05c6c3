"""Turns what `bench/run` has measured into tables and a plot."""

import os
import platform
import re
import statistics
import subprocess
from pathlib import Path

OURS = "container-run"
FIRST_START = f"{OURS}, first start"
BARE_SHELL = "dash -c :"

# A tree's KILL is linear if a process costs at most so much more in the largest tree than in the
# one before it.
LINEAR = 1.5


def ms(nanoseconds):
    return f"{nanoseconds / 1e6:.2f}"


def median_ms(nanoseconds):
    return statistics.median(nanoseconds) / 1e6


def bold(name):
    return f"**{name}**" if name == OURS else name


def table(head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def compared(title, figures, base, name_of_base):
    """A table of median, quickest, and ratio to the median of `base`."""
    if base not in figures:
        base = name_of_base = next(iter(figures))
    unit = median_ms(figures[base])
    rows = ([bold(name), f"{median_ms(values):.2f}", ms(min(values)), f"{median_ms(values) / unit:.2f}"]
            for name, values in figures.items())
    return table([title, "median", "quickest", f"× {name_of_base}"], rows)


# --- what is written ------------------------------------------------------------------------------


def whole(bench, results):
    """All of bench/RESULTS.md."""
    parts = [
        "# Measured\n",
        f"Written by `make bench`; do not edit. Times are in ms, of {bench.rounds} rounds if nothing else is said. "
        "All that stands in one table was measured in the same rounds, in an order that changes from round to "
        "round.\n",
        "## Goals\n",
        goals(results),
        "## Machine and versions\n",
        machine(bench, results),
        "## Start-up\n",
        "From just before the exec of the supervisor to `main` of its process, a static program; all folders and "
        "the bpm script are there, but at a first start. s6-supervise and runsv have a folder in which the program "
        "itself is `run`.\n",
        start_up(results),
        start_up_as_pid1(results),
        "## Whole life\n",
        "From the exec of the supervisor until it has ended, with a process that fails at once. The process of "
        "s6-supervise and runsv tells them to end; runsv waits a second all the same (5 rounds).\n",
        compared("", results["whole_life"], "tini", "tini"),
        "## Commands\n",
        "From the start of the command to its end. The process obeys TERM at once.\n",
        commands(results),
        slow_stop(results),
        table(["", "median", "quickest", "× dash"], list_rows(results)),
        "## Size and rest\n",
        "In KiB, each beside an idle process, one of each: a static program shares its pages with nobody, the others "
        f"share the C library with all that runs here. Wake-ups in {results['idle'][0]} s.\n",
        idle(results),
        "RSS of one container-run: " + ", ".join(f"{kib} {when}" for when, kib in results["use"].items()) + ".\n",
        f"The static binary has {results['binary']:,} bytes.\n",
        "## How cost grows\n",
        "SIGKILL to a tree in which nine of ten descendants are grandchildren, until each is signalled, and until all "
        "are reaped and this is answered; every process of the machine is looked at. Beside it killpg(2) and wait(2) "
        "for a process group of the same shape, which need not look for anybody, and which a process leaves by "
        "setsid(2). "
        f"{len(next(iter(results['kill_tree'].values()))[OURS])} rounds.\n",
        kill_tree(results),
        orphans(results),
    ]
    return "\n".join(parts)


def short(results):
    """The README's part."""
    tables = [lives_in_short(results), commands_in_short(results), idle(results), kill_in_short(results)]
    return "\n" + "\n".join([*tables, ""])


def lives_in_short(results):
    columns = {"start-up below another init": "start_up", "as PID 1": "start_up_as_pid1", "whole life": "whole_life"}

    def row(name):
        figures = (results[figure] or {} for figure in columns.values())
        return [bold(name), *(f"{median_ms(each[name]):.2f}" if name in each else "" for each in figures)]

    return table(["ms", *columns], map(row, results["start_up"]))


def commands_in_short(results):
    unit = median_ms(results["commands"][BARE_SHELL])
    rows = [[name, f"{median_ms(values):.2f}", f"{median_ms(values) / unit:.2f}"]
            for name, values in results["commands"].items()]
    rows += [[name, median, ratio] for name, median, _, ratio in list_rows(results)]
    return table(["command", "ms", "× dash"], rows)


def kill_in_short(results):
    rows = []
    for count, figures in results["kill_tree"].items():
        gone = median_ms(gone for _, gone in figures[OURS])
        rows.append([f"{count:,}", f"{gone:.2f}", f"{gone / count * 1000:.1f}"])
    return table(["descendants killed", "ms", "µs each"], rows)


def update(readme, part):
    """Replaces what stands between the two marks."""
    begin, end = "<!-- from bench/run -->\n", "<!-- until here -->\n"
    before, rest = readme.read_text().split(begin)
    _, after = rest.split(end)
    readme.write_text(before + begin + part + end + after)


def start_up(results):
    return compared("start-up below another init", results["start_up"], "tini", "tini")


def start_up_as_pid1(results):
    if not results["start_up_as_pid1"]:
        return ""
    return compared("start-up as PID 1", results["start_up_as_pid1"], "tini", "tini")


def commands(results):
    return compared("command", results["commands"], BARE_SHELL, "dash")


def slow_stop(results):
    late = results["slow_stop"]
    return (f"`bpm stop` of a process that takes 0.3 s returns {median_ms(late):.2f} after the last step of the "
            f"process; {ms(max(late))} at worst of {len(late)}.\n")


def list_rows(results):
    for count, figures in results["lists"].items():
        median = median_ms(figures[OURS])
        yield [f"bpm list, {count} supervisors", f"{median:.2f}", ms(min(figures[OURS])),
               f"{median / median_ms(figures[BARE_SHELL]):.2f}"]


def idle(results):
    _, sizes = results["idle"]
    columns = ["RSS", "PSS", "USS", "threads", "wake-ups"]
    rows = [[bold(name), *(figures[column] for column in columns)] for name, figures in sizes.items()]
    if both := results["idle_as_pid1"]:
        rows.append([f"{OURS} as PID 1, both processes", *(both.get(column, "") for column in columns)])
    return table(["idle", *columns], rows)


def kill_tree(results):
    rows = []
    for count, figures in results["kill_tree"].items():
        signalled, gone = (median_ms(times) for times in zip(*figures[OURS]))
        bare = median_ms(figures["killpg"])
        rows.append([f"{count:,}", f"{signalled:.2f}", f"{gone:.2f}", f"{gone / count * 1000:.1f}", f"{bare:.2f}",
                     f"{gone / bare:.2f}"])
    return table(["descendants", "signalled", "gone", "µs each", "killpg, wait", "× that"], rows)


def orphans(results):
    count, figures = results["orphans"]
    rate = {name: count / statistics.median(values) * 1e9 for name, values in figures.items()}
    return (f"Of {count:,} orphans that end at the same time, {rate[OURS]:,.0f} are reaped in a second; by a bare loop "
            f"of wait(2) {rate['killpg']:,.0f}.\n")


def goals(results):
    """What it should be, what it is, and whether that will do."""
    rows = []

    def goal(what, limit, measured, unit="ms", digits=2):
        met = "yes" if measured <= limit else "**no**"
        rows.append([what, f"{limit:.{digits}f}", f"{measured:.{digits}f}", unit, met])

    at_most_tini = {"start_up": "start-up", "start_up_as_pid1": "start-up as PID 1", "whole_life": "whole life"}
    for figure, name in at_most_tini.items():
        figures = results[figure]
        if figures and "tini" in figures:
            goal(f"{name}, at most tini's", median_ms(figures["tini"]), median_ms(figures[OURS]))
    timed = {name: median_ms(values) for name, values in results["commands"].items()}
    slowest = max((name for name in timed if name.startswith("bpm")), key=timed.get)
    goal(f"slowest command, `{slowest}`, at most 5 × `{BARE_SHELL}`", 5 * timed[BARE_SHELL], timed[slowest])
    goal("`bpm stop` returns after the process has gone", 5, median_ms(results["slow_stop"]))
    most = max(results["lists"])
    goal(f"`bpm list` of {most}", 100, median_ms(results["lists"][most][OURS]))
    seconds, sizes = results["idle"]
    goal("PSS, idle", 1024, sizes[OURS]["PSS"], "KiB", 0)
    goal(f"wake-ups in {seconds} s", 0, sizes[OURS]["wake-ups"], "", 0)
    goal("static binary", 1.5, results["binary"] / 1e6, "MB")
    (some, few), (more, many) = list(results["kill_tree"].items())[-2:]
    each_of_few, each_of_many = (
        statistics.median(gone for _, gone in figures[OURS]) / count / 1000
        for count, figures in ((some, few), (more, many)))
    goal(f"KILL, each of {more:,}; linear: at most {LINEAR} × each of {some:,}", LINEAR * each_of_few, each_of_many,
         "µs", 1)
    return table(["goal", "limit", "measured", "", "met"], rows)


# --- the machine ----------------------------------------------------------------------------------


def machine(bench, results):
    cpu = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    facts = [
        f"{name.group(1) if name else platform.machine()}, {os.sysconf('SC_NPROCESSORS_ONLN')} cores, "
        f"{'virtual' if re.search('hypervisor', cpu) else 'real'}; Linux {platform.release()}; "
        f"load at the start {results['load']:.1f}",
        f"{said_by(bench.binary, '--version')}, {said_by('rustc', '--version')}",
        ", ".join(f"{package} {version(package)}" for package in [*bench.peers, "dash"]),
        f"BOSH root on {bench.file_system} (ext4 is slow to make files "
        "while others were removed in the last 5 s, for whatever program)",
    ]
    return "".join(f"- {fact}\n" for fact in facts)


def version(package):
    return said_by("dpkg-query", "--show", "--showformat=${Version}", package) or "of unknown version"


def said_by(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.strip()


# --- the plot -------------------------------------------------------------------------------------

# Greys and a blue that can be read on white and on black.
INK, PEER, OWN = "#7b828a", "#8c959f", "#3f83f8"

WIDTH, LEFT, RIGHT = 760, 220, 60
BAR, STEP, TITLE = 16, 22, 30

# What takes longer, by design, would leave no room for the others.
LONGEST_MS = 50


def plot(results):
    """Bars of all medians of start-up and commands, on one scale."""
    panels = {
        "start-up below another init": results["start_up"],
        "start-up as PID 1": results["start_up_as_pid1"],
        "whole life of a process that fails at once": results["whole_life"],
        "commands": results["commands"],
    }
    medians = {title: {name: median_ms(values) for name, values in figures.items()}
               for title, figures in panels.items() if figures}
    scale = (WIDTH - LEFT - RIGHT) / max(value for bars in medians.values() for value in bars.values()
                                         if value < LONGEST_MS)
    y, drawn = 0, []
    for title, bars in medians.items():
        y += TITLE
        drawn.append(words(0, y - 10, f"{title}, ms", weight="bold"))
        for name, value in bars.items():
            if value < LONGEST_MS:
                drawn += bar(y, name, value, value * scale)
                y += STEP
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" '
        'font-family="sans-serif" font-size="13">',
        "<title>Medians of start-up and commands, in ms</title>", *drawn, "</svg>", ""])


def bar(y, name, value, length):
    colour = OWN if name.startswith((OURS, "bpm")) else PEER
    return [
        words(LEFT - 8, y + BAR - 3, name, anchor="end"),
        f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
        words(LEFT + length + 6, y + BAR - 3, f"{value:.2f}"),
    ]


def words(x, y, text, anchor="start", weight="normal"):
    return f'<text x="{x:.1f}" y="{y}" fill="{INK}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'
