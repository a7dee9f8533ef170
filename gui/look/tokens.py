"""Every colour, size and width of the window; nothing else in the project spells one.

Chrome is grey, colour is data: each hue means one thing in the whole window, and red means failed or refused.
Lengths are in logical pixels, colours are `#rrggbb`, alphas run from 0 to 1. No Qt is needed to read this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Palette:
    """The colours of one theme.

    Attributes:
        plot, panel: ground of the centre column; of side panels, toolbar and status bar.
        raised, hover: inputs, buttons and the hover card; selected row, pressed.
        line, border, track: hairlines and the zero line; edges of controls; grooves of sliders and progress.
        grid: grid lines of the plots.
        t1, t2, t3: values and titles; labels and legends; ticks, units and captions. On `hover` use t1 and t2.
        primary, primary_text: the one primary button on screen; flags of settings changes.
        error, error_ground: failed, refused.
        full, timeout, drained, joined, left: release reasons.
        waiting, formed, running: stages of a request.
        p50, p95, p99: percentiles of latency.
        segment, segment_selected: ground of a segmented control; the chosen segment.
        bar_alpha: of the tint under a mark or a bar.
        fill_alpha: of an area under a curve.
    """

    name: str
    is_dark: bool
    plot: str
    panel: str
    raised: str
    hover: str
    line: str
    border: str
    track: str
    grid: str
    t1: str
    t2: str
    t3: str
    primary: str
    primary_text: str
    error: str
    error_ground: str
    full: str
    timeout: str
    drained: str
    joined: str
    left: str
    waiting: str
    formed: str
    running: str
    p50: str
    p95: str
    p99: str
    segment: str
    segment_selected: str
    bar_alpha: float
    fill_alpha: float

    @property
    def release_reasons(self) -> Mapping[str, str]:
        return {name: getattr(self, name) for name in MARK_SIZES}

    @property
    def stages(self) -> Mapping[str, str]:
        return {"waiting": self.waiting, "formed": self.formed, "running": self.running}

    @property
    def percentiles(self) -> Mapping[str, str]:
        return {"p50": self.p50, "p95": self.p95, "p99": self.p99}


_COLOURS: Final[Mapping[str, tuple[str, str]]] = {  # in the dark palette, and in the light one
    "plot": ("#0C0E11", "#FFFFFF"),
    "panel": ("#111418", "#F6F7F9"),
    "raised": ("#1A1E24", "#FFFFFF"),
    "hover": ("#232931", "#E9ECF0"),
    "line": ("#22272F", "#E1E4E9"),
    "border": ("#39424E", "#C3C9D2"),
    "track": ("#333B46", "#CFD4DC"),
    "grid": ("#1A1E24", "#EEF0F3"),
    "t1": ("#E9ECF0", "#15181D"),
    "t2": ("#AAB3C0", "#47505D"),
    "t3": ("#8791A0", "#616B79"),
    "primary": ("#E9ECF0", "#15181D"),
    "primary_text": ("#0C0E11", "#FFFFFF"),
    "error": ("#FF7A76", "#C4232B"),
    "error_ground": ("#2A1618", "#FDECEC"),
    "full": ("#F0A23B", "#C66A00"),
    "timeout": ("#A98BFA", "#7346D8"),
    "drained": ("#34C3A2", "#0A8A70"),
    "joined": ("#D3E38C", "#4A5C14"),
    "left": ("#7B8C54", "#87995C"),
    "waiting": ("#5C687D", "#8A94A4"),
    "formed": ("#F06BB0", "#C22C86"),
    "running": ("#C4CCD8", "#3C4757"),
    "p50": ("#8CCBFF", "#0A3F7A"),
    "p95": ("#4F9FEA", "#2672BC"),
    "p99": ("#3F7DC6", "#5C95D0"),
    "segment": ("#1A1E24", "#E9ECF0"),
    "segment_selected": ("#333B46", "#FFFFFF"),
}
DARK: Final = Palette(
    name="dark",
    is_dark=True,
    bar_alpha=0.18,
    fill_alpha=0.55,
    **{name: dark for name, (dark, _) in _COLOURS.items()},
)
LIGHT: Final = Palette(
    name="light",
    is_dark=False,
    bar_alpha=0.13,
    fill_alpha=0.45,
    **{name: light for name, (_, light) in _COLOURS.items()},
)
PALETTES: Final[Mapping[str, Palette]] = {"dark": DARK, "light": LIGHT}

# Type -----------------------------------------------------------------------------------------------------------------
FONT_FAMILIES: Final = ("Inter", "SF Pro Text", "Segoe UI Variable", "Noto Sans", "DejaVu Sans")
FONT_FILES: Final = ("Inter-Regular.otf", "Inter-Medium.otf", "Inter-SemiBold.otf")
WEIGHT_REGULAR: Final = 400
WEIGHT_MEDIUM: Final = 500
WEIGHT_BOLD: Final = 600
TYPE_SCALE_LARGE: Final = 1.3  # of all sizes, for a projector
FONT_FIGURE: Final = 22
FONT_FIGURE_SMALL: Final = 20
FONT_FIGURE_NARROW: Final = 15
FONT_HEADING: Final = 18
FONT_TITLE: Final = 13
FONT_TEXT: Final = 12
FONT_CAPTION: Final = 11
FONT_SIZES: Final = (
    "FONT_FIGURE", "FONT_FIGURE_SMALL", "FONT_FIGURE_NARROW", "FONT_HEADING", "FONT_TITLE", "FONT_TEXT", "FONT_CAPTION",
)  # fmt: skip

# Space ----------------------------------------------------------------------------------------------------------------
GAP_HALF: Final = 2
GAP_1: Final = 4
GAP_2: Final = 8
GAP_3: Final = 12
GAP_4: Final = 16
PANEL_PADDING: Final = 16
SECTION_GAP: Final = 16
SECTION_TOP: Final = 14
GAP_HEAD: Final = 6  # between the head of a section and what follows
HEIGHT_SECTION_HEAD: Final = 24
RADIUS_CONTROL: Final = 6
RADIUS_INNER: Final = 4
RADIUS_FLAG: Final = 3
HAIRLINE: Final = 1

# Heights and widths ---------------------------------------------------------------------------------------------------
HEIGHT_TOOLBAR: Final = 48
HEIGHT_FIGURES: Final = 80
HEIGHT_FIGURES_EMPTY: Final = 68
HEIGHT_PANEL_HEADER: Final = 32
HEIGHT_VIEWS: Final = 36
HEIGHT_VERDICT: Final = 40
HEIGHT_DETAILS: Final = 404  # of one request, at the least
HEIGHT_DETAILS_MOST: Final = 520
HEIGHT_REQUESTS_MIN: Final = 210  # of the table of all above it; else it gives way
HEIGHT_CONTROL: Final = 26
HEIGHT_CONTROL_TOOLBAR: Final = 30
HEIGHT_SEGMENTED: Final = 28
HEIGHT_SEGMENTED_SMALL: Final = 20  # in the header of a plot
HEIGHT_PRIMARY: Final = 36
HEIGHT_ROW: Final = 40
HEIGHT_STATUS_BAR: Final = 26
HEIGHT_LOG: Final = 180
HEIGHT_HOLD: Final = 254
HEIGHT_CURVES_MIN: Final = 180  # of A and B compared; below them stand the figures
HEIGHT_FINDINGS_MIN: Final = 96
HEIGHT_EDITOR: Final = 104
LINE_EDITOR: Final = 18
HEIGHT_NOTICE_FAILED: Final = 60
WIDTH_LEFT: Final = 264
WIDTH_RIGHT: Final = 320
WIDTH_BACK: Final = 88
WIDTH_GUESS: Final = 96
WIDTH_REVEAL_NAME: Final = 84  # left of the axis of a guess, and right of it
WIDTH_REVEAL_VALUE: Final = 64
WIDTH_REVEAL_TICK: Final = 28
HEIGHT_REVEAL: Final = 24  # of a line of it
WIDTH_LEFT_SMALL: Final = 248
WIDTH_RIGHT_SMALL: Final = 280
WIDTH_SIDE_MIN: Final = 220
WIDTH_SIDE_MAX: Final = 480
WIDTH_NUMBER: Final = 84
WIDTH_NUMBER_COMPACT: Final = 75
WIDTH_NUMBER_SMALL: Final = 64
WIDTH_NUMBER_TINY: Final = 44  # of two digits
WIDTH_GOAL: Final = 304  # the column of what a search found, and of the moves of Hold
WIDTH_COMPARE: Final = 264  # the column in which a comparison is set up
WIDTH_VIEW: Final = 96
WIDTH_PERCENTILES: Final = 400  # below: a cumulative plot tells p50 and p95 only
WIDTH_NAMED: Final = 560  # from here on a cumulative plot names its samples also at rest
WIDTH_MODEL: Final = 206
WIDTH_DEVICE: Final = 112
WIDTH_MODEL_SMALL: Final = 150
WIDTH_DEVICE_SMALL: Final = 96
WIDTH_LIFE_CYCLE: Final = 96
WIDTH_TIME_WINDOW: Final = 88
HEIGHT_OVERVIEW: Final = 28  # of a whole recording
HEIGHT_CHIP: Final = 20
HEIGHT_DIVIDER: Final = 20
WIDTH_CENTRE_MIN: Final = 480
BREAKPOINT_COMPACT: Final = 1400  # below: narrower columns, smaller figures, the time window as a menu
BREAKPOINT_DRAWER: Final = 1120  # below: the right panel becomes a drawer
WINDOW_DEFAULT: Final = (1440, 900)
WINDOW_MIN: Final = (940, 600)
HEIGHT_TIMELINE: Final = 266
HEIGHT_TIMELINE_SMALL: Final = 236

# The notice
NOTICE_PADDING: Final = 20
GAP_NOTICE: Final = 56
GAP_STEPS: Final = 26
GAP_STAGES: Final = 8
WIDTH_NOTICE_WORDS: Final = 228
WIDTH_PRIMARY: Final = 124
HEIGHT_SCENARIO: Final = 50
HEIGHT_ABOUT: Final = 56  # three lines of what is found
FINDER: Final = (520, 420)
ABOUT_ICON: Final = 64
WIDTH_ABOUT: Final = 520
SCENARIO_BAR: Final = 2
BREAKPOINT_LOW: Final = 820  # below: the notice leaves the scenarios out, and the room to the plots

# A row of the table of requests: where its text begins, and the middles of its two lines
REQUEST_TEXT_X: Final = 40
REQUEST_UPPER_Y: Final = 13
REQUEST_LOWER_Y: Final = 28

# A figure, from the top of the row: baselines, and the swatch's height above the label's
FIGURE_LABEL_Y: Final = 22
FIGURE_NUMBER_Y: Final = 50
FIGURE_BEFORE_Y: Final = 68
WIDTH_FIGURE: Final = 84
WIDTH_FIGURE_SMALL: Final = 73  # below: its number and its words are smaller
WIDTH_FIGURE_MIN: Final = 46
SWATCH_RISE: Final = 5
SWATCH_GAP: Final = 6
GAP_UNIT: Final = 3
GAP_BEFORE: Final = 5  # between v6 and its figure

# Controls -------------------------------------------------------------------------------------------------------------
SEGMENT_MARGIN: Final = 2
SEGMENT_INSET: Final = 3
MENU_INSET: Final = 6
MENU_INSET_Y: Final = 5
MENU_INSET_RIGHT: Final = 24
SEGMENT_PADDING: Final = 14  # at the least, of a segment's width, is not text
SEGMENT_PADDING_SMALL: Final = 13
SLIDER_GROOVE: Final = 3
SLIDER_HANDLE: Final = 15
SLIDER_HEIGHT: Final = 16
SLIDER_MARKER: Final = 8
MEASURED_HEIGHT: Final = 18
GAP_SLIDER: Final = 2  # between a number and the slider below it
PROGRESS_HEIGHT: Final = 4
FOCUS_RING: Final = 2
FOCUS_RADIUS_EXTRA: Final = 3
FOCUS_MARGIN: Final = FOCUS_RING + 2
ICON: Final = 16
ICON_SMALL: Final = 12
GLYPH: Final = 11
GLYPH_LARGE: Final = 15
CARET: Final = 6
SCROLL_BAR: Final = 8
SCROLL_BAR_LEAST: Final = 24
ERROR_EDGE: Final = 3  # at the left of the notice of a failure
STROKE: Final = 1.25  # of glyphs that are drawn, not typeset
RING_WIDTH: Final = 2
SWATCH_WIDTH: Final = 12
SWATCH_HEIGHT: Final = 2
STEP_CIRCLE: Final = 20

# Plots ----------------------------------------------------------------------------------------------------------------
PLOT_GUTTER: Final = 40
PLOT_MARGIN_RIGHT: Final = 16
PLOT_HEADROOM: Final = 0.18  # of the y range, above the largest value; the flags live there
LINE_WIDTHS: Final[Mapping[str, float]] = {"p50": 2.25, "p95": 1.75, "p99": 1.25}
LINE_EDGE: Final = 1.25  # upper edge of a stacked area, and the grey curves
LINE_GRID: Final = 1
LINE_MARKER: Final = 1  # settings change, load change, pointer
DASH_CHANGE: Final = (4, 3)
DASH_LOAD: Final = (1, 3)
DASH_CAP: Final = (4, 3)
DASH_DOTS: Final = (2, 2)
DASHES_OF_RUNS: Final = (None, (8, 3), DASH_DOTS)  # of the settings that stand side by side
HEIGHT_RUN: Final = 116  # of the timeline of one of them, at the least
HEIGHT_RUN_CURVES: Final = 160  # of their curves
WIDTH_SIDE_TABLE: Final = 640  # of their figures, at the most
MARK_SIZES: Final[Mapping[str, int]] = {
    "full": 7,  # square
    "timeout": 8,  # circle
    "drained": 9,  # triangle
    "joined": 10,  # diamond
    "left": 6,  # triangle that stands on its point
}
MARK_ROOM: Final = 9  # pixels that a stretch of a continuous batch must be wide to have a mark
MARK_HOVER: Final = 8
MARK_LATENCY: Final = 3.5
MARK_BEST: Final = 11  # a sweep's best setting
MARK_CHOSEN: Final = 17  # ring around the point that was chosen
MARK_REACH: Final = 16  # pixels beside a point within which a click still means it
LINE_GHOST: Final = 2  # what is predicted
DASH_CAPACITY: Final = (1, 2)
CAPACITY_TEXT: Final = 3  # between the line and what it says
DASH_GHOST: Final = (6, 3)
AHEAD_S: Final = 30.0  # that the plots show right of now while there is a prediction
GHOST_ALPHA: Final = 0.2  # of the band that it is thought to lie in
GHOST_ALPHA_GREY: Final = 0.14
GHOST_LINE: Final = 15  # the height of a line of the words beside it
GHOST_ARROW: Final = 4  # half as wide; where it lies above the plot
GUESS_REACH: Final = 4.0  # times the data's height, to which a plot grows for a guess at most
GUESS_RING: Final = 24
GUESS_HANDLE: Final = 16
GHOST_REACH: Final = 2.0  # times the data's height, to which a plot grows for it at most
BAR_GAP: Final = 1
LANE_HEIGHTS: Final = (3, 2, 1)  # the first that has room for all requests at once
LANE_GAP: Final = 1  # within a lane of 2 or more
FLAG_HEIGHT: Final = 16
FLAG_PADDING: Final = 5
CARD_WIDTH: Final = 208
CARD_PADDING: Final = 12
LATENCY_ALPHA: Final = 0.7
GAP_ALPHA: Final = 0.14  # between two cumulative curves
FAILURE_ALPHA: Final = 0.06
THROUGHPUT_FILL_ALPHA: Final = 0.08
RUNNING_FILL_ALPHA: Final = 0.8  # stronger than Palette.fill_alpha: it is the work that is being done
LEGEND_GAP: Final = 16
LEGEND_SWATCH: Final = 8
LEGEND_LINE: Final = 12
LEGEND_LINE_WIDTH: Final = 2
PLOT_BOTTOM: Final = 10  # below the zero line, where half of its label stands
PLOT_AXIS: Final = 24  # below the zero line, with the ticks of time
PLOT_MIN_HEIGHT: Final = 72
PLOTS_HEIGHT: Final = 709  # plots and timeline together where the timeline has HEIGHT_TIMELINE
PLOTS_HEIGHT_SMALL: Final = 609
PLOTS_HEIGHT_TALL: Final = 840
PANE_GAP: Final = 12
TICK_DISTANCE: Final = 30  # pixels of height that a tick of the y axis needs
TICK_WIDTH: Final = 50  # pixels of width that a tick of the x axis needs
FLAG_ROW: Final = 20  # above the lanes of the timeline
WORDS_ROW: Final = 15  # above that row, where it lacks room for all words
CHIP_HEIGHT: Final = 18
CHIP_PADDING: Final = 7
CARD_LINE: Final = 18
CARD_DISTANCE: Final = 4
LANE_SCROLL_BAR: Final = 3
LANE_REACH: Final = 4  # pixels beside a lane within which a click still means its request
CLICK_SLACK: Final = 4  # pixels that the pointer may move in a click
STAGE_STRIP: Final = 14
STAGE_STRIP_LINE: Final = 18
STAGE_BAR: Final = 26
STAGE_BAR_BEFORE: Final = 10
STAGE_GUTTER: Final = 80  # left of the bars of stages, for their names
STAGE_TOTAL: Final = 56  # right of the longest bar, for its sum
STAGE_LINE: Final = 20
STAGE_TABLE: Final = 228
STAGE_NUMBER: Final = 60
PREFILL_ALPHA: Final = 0.6  # of the colour of running, for the part of it before the first token
HOVER_EDGE: Final = 1.5  # around the dot on a line
FAILURE_EDGE: Final = 1
STRETCH_BAR: Final = 4  # on the axis, as long as the stretch
HOW_TO_BAR: Final = 9
HOW_TO_PITCH: Final = 12
HOW_TO_LINE: Final = 16
HELP_WIDTH: Final = 460
HOW_TO_WIDTH: Final = 430
HOW_TO_ALPHA: Final = 0.8


# Time -----------------------------------------------------------------------------------------------------------------
SETTINGS_INTERVAL_MS: Final = 40  # between two changes sent while a slider is dragged
RESCALE_INTERVAL_S: Final = 1.0  # a y axis changes its scale no more often
TIME_WINDOWS_S: Final = (30, 60, 300, 600)
