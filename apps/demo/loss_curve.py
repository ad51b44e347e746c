#!/usr/bin/env python3
"""Draws the loss of each step, from metrics.jsonl, as an SVG picture.

Usage: loss_curve.py METRICS.jsonl OUT.svg [TITLE]
"""
import json
import math
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 44, 46
SMOOTHED_OVER = 10  # steps; single batches differ by more than the trend between two of them


def read_losses(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [(row["step"], row["loss"]) for row in rows if row["loss"] is not None]


def moving_mean(points):
    means = []
    for i, (step, _) in enumerate(points):
        window = points[max(0, i - SMOOTHED_OVER + 1):i + 1]
        means.append((step, sum(loss for _, loss in window) / len(window)))
    return means


def round_step(span, wanted):
    """The 1, 2 or 5 times a power of ten that cuts `span` into about `wanted` parts."""
    raw = span / wanted
    power = 10 ** math.floor(math.log10(raw))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)


def marks(low, high, wanted):
    step = round_step(high - low, wanted)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


class Chart:
    def __init__(self, points):
        steps = [step for step, _ in points]
        losses = [loss for _, loss in points]
        margin = 0.05 * (max(losses) - min(losses)) or 0.1
        self.x_range = (min(steps), max(max(steps), min(steps) + 1))
        self.y_range = (min(losses) - margin, max(losses) + margin)

    def x(self, step):
        low, high = self.x_range
        return LEFT + (step - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, loss):
        low, high = self.y_range
        return HEIGHT - BOTTOM - (loss - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def line(self, points, style):
        path = " ".join(f"{self.x(step):.1f},{self.y(loss):.1f}" for step, loss in points)
        return f'<polyline points="{path}" fill="none" {style}/>'

    def axes(self):
        grid = 'stroke="#ddd" stroke-width="1"'
        parts = []
        for loss in marks(*self.y_range, 6):
            y = self.y(loss)
            parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" {grid}/>')
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{loss:g}</text>')
        for step in marks(*self.x_range, 8):
            x, y = self.x(step), HEIGHT - BOTTOM
            parts.append(f'<text x="{x:.1f}" y="{y + 18}" text-anchor="middle">{step:g}</text>')
        parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">step</text>')
        return parts


def draw(points, title):
    chart = Chart(points)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="15">{escape(title)}</text>',
        *chart.axes(),
        chart.line(points, 'stroke="#9bbbdd" stroke-width="1"'),
        chart.line(moving_mean(points), 'stroke="#1f5fa8" stroke-width="2"'),
        f'<text x="{WIDTH - RIGHT}" y="26" text-anchor="end" fill="#555">'
        "thin: each step, thick: moving mean</text>",
        "</svg>",
    ]) + "\n"


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__.strip())
    points = read_losses(sys.argv[1])
    if not points:
        sys.exit(f"{sys.argv[1]}: no losses to draw")
    title = sys.argv[3] if len(sys.argv) == 4 else "Training loss"
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(points, title))


if __name__ == "__main__":
    main()
