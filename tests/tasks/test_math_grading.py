"""Answers in mathematics: tables first, then the real golds. Algebra runs in its own processes."""

import json
import re
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from potluck.tasks.math.grading import number, same_answer
from potluck.tasks.math.pool import Ask, are_right

SAME = {
    # Numbers, however they are written.
    "18": ("18", " 18.", "+18", "18.0", "$18$", "$$18$$", r"\(18\)", r"\[18\]", r"$\boxed{18}$.",
           r"\boxed{$18$}", r"\fbox{18}", r"\frac{36}{2}", "36/2", "018", r"1.8 \times 10^{1}",
           r"\displaystyle 18", "**18**", r"The final answer is \boxed{18}", "\u200b18"),
    "-18": ("\u221218", "- 18", "(-18)", r"-\frac{36}{2}", r"\frac{-36}{2}", r"\frac{36}{-2}"),
    r"\frac{1}{2}": ("1/2", ".5", r"\frac12", r"\frac 12", r"\dfrac{1}{2}", r"\tfrac12",
                     r"\frac{2}{4}", r"\frac{0.5}{1}"),
    r"1\frac{4}{5}": ("1.8", "9/5", r"\frac95", r"1\frac45", r"1 \dfrac{4}{5}", "1 4/5"),
    r"10,\!080": ("10080", "10,080", "10{,}080", r"10,\! 080", "10080.0", "10 080"),
    ".0000672": ("0.0000672", r"6.72\cdot 10^{-5}"),
    r"11,\! 111,\! 111,\! 100": ("11111111100", "11,111,111,100"),
    "9" * 40: (r"\boxed{" + "9" * 40 + "}",),
    # Roots, pi, i, letters.
    r"3\sqrt{13}": (r"\sqrt{117}", "3*sqrt(13)", r"\sqrt{13}\cdot 3", "3\u221a13", r"3\sqrt {13}"),
    r"\frac{\sqrt{3}}{3}": (r"\frac{1}{\sqrt{3}}", r"\dfrac{\sqrt3}{3}", r"\sqrt{3}/3",
                            r"\frac13\sqrt3", r"\sqrt{\frac{1}{3}}"),
    r"\sqrt{2+\sqrt{3}}": (r"\frac{\sqrt{6}+\sqrt{2}}{2}", r"\sqrt{\sqrt{3}+2}"),
    r"288 \pi": ("288pi", "288\u03c0", r"\pi \cdot 288", r"\frac{576\pi}{2}"),
    "6 - 5i": ("6-5i", "-5i+6", "$6-5i$"),
    "2k+2": ("2+2k", r"2\cdot k+2"),
    r"\frac{x+2}{7}": (r"\frac{1}{7}(x+2)", "(x+2)/7"), "x(x+1)": ("(x+1)x", "x[1+x]"),
    r"\frac{9}{2}(x+1)": (r"\frac{9(x+1)}{2}", "4.5(x+1)"), r"\log_2 x": (r"\log_2(x)",),
    r"2\sin(3x)": (r"2\sin 3x",), r"3\cdot 2^n": (r"2^n\cdot 3",), "2^{50}": ("1125899906842624",),
    "(a+5)(b+2)": ("(b+2)(a+5)", r"\left(a+5\right)\left(b+2\right)"),
    r"\cot x": (r"\cot(x)", "cot x"),
    "x^3+3x-6": ("x^{3}+3x-6", "3x + x^3 - 6", r"x^3+3\cdot x-6"),
    r"0.5\sqrt{3}": (r"\frac{\sqrt{3}}{2}",),
    # Names, equations, units, bases.
    "x=5": ("5", "x = 5", r"\boxed{x=5}"),
    "y = 2x + 3": ("2x+3=y", "y=3+2x", "2x+3"),
    "5x - 7y + 11z + 4 = 0": ("0 = 5x - 7y + 11z + 4", "4+11z-7y+5x=0"),
    r"90^\circ": ("90", r"90^{\circ}", "90\u00b0", "90 degrees", r"90\text{ degrees}"),
    r"\$18.90": ("18.9", r"\$18.9", "$18.90", r"$\$18.90$", "18.90 dollars"),
    r"864 \mbox{ inches}^2": ("864", r"864 \text{ inches}^2", "864 inches^2"),
    r"5.4 \text{ cents}": ("5.4", "5.4 cents", r"\frac{27}{5}"),
    "2516_8": ("2516_{8}", "2516"),
    # Lists, points, intervals, unions, matrices, words.
    "1,-2": ("-2, 1", r"1 \text{ and } -2", r"\{1,-2\}", "$1$, $-2$", "$1$ or $-2$"),
    "1, 1, 2": ("2, 1, 1",),
    "3, 500": ("3,500", "500,3"),
    r"1 \pm \sqrt{19}": (r"1+\sqrt{19}, 1-\sqrt{19}", r"1 \mp \sqrt{19}", "1\u00b1\u221a19",
                         r"\{1-\sqrt{19}, 1+\sqrt{19}\}"),
    r"\{1\pm\sqrt{5},-2\}": (r"-2, 1+\sqrt{5}, 1-\sqrt{5}", r"1\mp\sqrt5, -2"),
    r"\left( 3, \frac{\pi}{2} \right)": (r"(3, \frac{\pi}{2})", "(3, pi/2)"),
    "(-2,1)": (r"\left(-2, 1\right)", r"( -\frac{4}{2}, 1.0)"),
    "(3,4]": (r"\left(3,4\right]", "( 3 , 4 ]"),
    r"(-\infty, 2) \cup (3, \infty)": (r"(3,\infty)\cup(-\infty,2)", r"(-\infty,2)\cup(3,+\infty)"),
    r"x \in [-2,7]": ("[-2,7]", r"x \in \left[-2,7\right]"),
    r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}": (
        r"\begin{pmatrix} 0.2 \\ -3.6 \end{pmatrix}",
        r"\begin{bmatrix}\frac15\\-\frac{18}{5}\end{bmatrix}"),
    r"\text{(C)}": ("C", "(C)", r"\text{C}", r"\textbf{(C)}", r"\mathrm{C}", "(c)"),
    r"\text{Evelyn}": ("evelyn", r"\text{Evelyn}", "Evelyn."),
}  # fmt: skip

OTHER = {
    "18": ("", " ", "17", "-18", "18.01", "1.8", "180", "2*9", r"2 \cdot 9", "2(9)", "9+9", "20-2",
           r"3^2 \cdot 2", r"\sqrt{324}", r"\binom{18}{1}", "18!", r"\sum_{i=1}^{18} 1", "17, 18",
           "18, 18", "17 18", "1 8", "17 or 18", "either 17 or 18", "(18)(1)", r"\{18\}",
           "(17, 18)", "[18]", "18%", "18 eggs", r"18 \text{ cm}", "18cm", "It is 18", "(18",
           "the answer is 18", "18x", "18i", "eighteen", "0x12", "18_8", r"\boxed{17} \boxed{18}",
           r"\boxed{\boxed{17}, 18}", "$17$ $18$", "**17** **18**", "**18", "--18", "-(-18)",
           "18=18", "17=18", "18 \\ 18", "18^1", "18e0", "1.8e1", r"18^\circ", r"\$18",
           r"18 \pm 0", "\u0661\u0668", "\uff11\uff18", "18\u00b2", "18\0", "\ud80018",
           "__import__('os')", r"\approx 18", r"\text{18}", r"18\text{s}", r"18\text{ }",
           r"9\frac{9}{1}", "16 4/2", "18?", "18;", "NaN", r"\infty",
           r"17 or \boxed{18}", r"The final answer is \boxed{18}, or 17", "1\u200b7", "\u200b",
           r"The answer is not \boxed{18}", r"Maybe \boxed{18}", "The final answer is 18"),
    r"\frac{1}{3}": ("0.333333", "33%", "1/3.0001", r"0.\overline{3}", "1:3", "3",
                     r"0.\text{}3333333"),
    "11": (r"11 \text{ or 12}", r"11\text{12, 13, 14}"), "6": (r"{2}\cdot{3}",), "8": ("(2)^3",),
    r"\frac{1}{2}": (r"\frac{1}{2}, \frac{1}{2}", "1/2x", "2^{-1}", r"\frac{1}{0}", "1/0"),
    r"1\frac{4}{5}": ("14/5", r"1 \cdot \frac{4}{5}", r"1, \frac{4}{5}", "1 5/4", "-1 4/5"),
    r"10,\!080": ("10,08", "10, 080", "1,0080", "0,010,080", "10.080", "100 80", "1 0080"),
    "58,500": ("58, 500", "(58,500)", "58.500"),
    "9" * 40: ("9" * 39 + "8", "1" + "0" * 40),
    r"\sqrt{51}": ("7.141428", r"\frac{7141428}{1000000}", "51", r"-\sqrt{51}", "51^{1/3}",
                   r"\sqrt{52}", r"\sqrt51", r"\sqrt[3]{51}", "51^{1/2}+0", r"[\sqrt{51}]",
                   r"\frac{7.1414284285428499}{1}"),
    r"3\sqrt{13}": ("10.8167", r"3+\sqrt{13}", r"\sqrt{9 \cdot 13}", r"\sqrt{39}"),
    # Worked out no further than a policy that is paid for it would.
    r"2\sqrt{2}": (r"\sqrt{2}^3", r"(\sqrt{2})^3", r"\sqrt2\cdot\sqrt4", r"[\sqrt2]^3"),
    r"\frac{\pi}{4}": (r"\frac12\cdot\frac12\pi", r"\pi\frac12^2", r"\pi\cdot(\frac12)^2"),
    "6x^2": (r"3x^2\cdot2", "2x3x", "[2x][3x]", "(2x)(3x)"), "x^2+6x+9": ("(x+3)^2", "[x+3]^2"),
    "x^2+5x+6": ("(x+2)[x+3]", "[x+2][x+3]", "x(x+5)+6", r"\frac{x+2}{(x+3)^{-1}}",
                 r"(x+2)\cdot(x+3)"),
    "288\\pi": (r"2\pi144", r"2\pi\cdot144", r"\frac43\pi 216", r"\frac{4\pi\cdot216}{3}"),
    r"288 \pi": ("904.78", r"2 \cdot 144 \pi", r"\frac{4}{3}\pi 6^3", "288", "288p i",
                 r"\sqrt{(288 \pi)^2}"),
    "6 - 5i": ("6+5i", "(6,-5)", "5i-6", "6-5j", r"6 - \sqrt{-25}", "1"),
    "2k+2": ("(k+4)+(k-2)", "2k", "2n+2", "2K+2", "k=2", "1((k+4)+(k-2))", "2(k+3-2)",
             r"\frac{(k+4)+(k-2)}{1}", "2(k+1)+k-k", r"\frac{(2k+2)k}{k}"),
    "k^2+3k+2": ("(k+2)(k+1)", "1((k+1)+(k^2+2k+1))"),
    "3R^2": ("3r^2", r"\pi R^2", "3R"),
    "(a+5)(b+2)": ("ab+2a+5b+10", "(a+5)(b-2)", "(a+5),(b+2)"),
    "6r^2-4r-24": ("4(3r^3+5r-6)-6(2r^3-r^2+4r)", "6r^2-4r+24"),
    r"\cot x": (r"\frac{\sec x}{\sin x} - \frac{\sin x}{\cos x}", r"\tan x", r"\cot y", r"\cot"),
    r"\frac{\sqrt3}{2}": (r"\sin 60^\circ", r"\cos(\pi/6)"),
    "3": (r"\log_2 8", r"\lim_{x \to 3} x", r"\int_0^3 dx", "|{-3}|"),
    "5": ("x=4", "x=5, y=5", "q=5", "x>5", r"x \approx 5", "x=5=5", "x=y=5", "x+1=6", "x=2+3", "x"),
    "x=5": ("y=5", "x=4", "5=5", "x"),
    "y = 2x + 3": ("2x-y+3=0", "y-2x=3", "x=2y+3", "y=2x-3", "y"),
    "5x - 7y + 11z + 4 = 0": ("10x-14y+22z+8=0", "5x-7y+11z=-4", "5x-7y+11z+4=1", "5x-7y+11z+4"),
    r"90^\circ": (r"\frac{\pi}{2}", "90%", r"90 \text{ cm}", "90 grad", r"\$90", "91"),
    r"\$18.90": ("18.90 cents", "18.90%", "1890", "18.90 euros", "\u20ac18.90"),
    r"864 \mbox{ inches}^2": ("864 inches", r"864 \text{ cm}^2", "864 cubic inches"),
    r"5.4 \text{ cents}": (r"\$5.4", r"5.4\text{ dollars}", "0.054", r"\$0.054"),
    r"10\%": ("0.01", "0.1%", "x = 0.1", "100", r"0.1 \text{ cm}"),
    "2516_8": ("2516_9", "1358", "2516_{10}", "2517_8", "2516_8, 2516_8"),
    "1,-2": ("1", "1,-2,-2", "1,2", "(1,-2)", "[1,-2]", "-1,2", r"\{\{1,-2\}\}", "1-2", "x=1, y=-2",
             r"\pm 1, -2"),
    "1, 1, 2": ("1, 2, 2", "1, 2", "1, 1, 2, 2"),
    "18x": ("1 8x", "18", "2*9x", "x"),
    "3x^2": ("x^{2}3", "x^3 2", "(3x)^2", "3x2"),
    r"1 \pm \sqrt{19}": (r"1+\sqrt{19}", r"1 \pm 19", r"1+\sqrt{19}, 1+\sqrt{19}",
                         r"(1 \pm \sqrt{19}, 0)", r"\pm(1+\sqrt{19})"),
    "(-2,1)": ("(1,-2)", "[-2,1]", "(-2,1]", "-2,1", r"\{-2,1\}", "(-2,1,0)", "x=-2, y=1",
               r"\begin{pmatrix}-2\\1\end{pmatrix}", "((-2,1))", "(-2;1)", r"(\pm 2,1)"),
    "(3,4]": ("[3,4)", "(3,4)", r"3 < x \le 4", "(4,3]", "3,4"),
    r"(-\infty, 2) \cup (3, \infty)": (r"(-\infty,2)", r"(-\infty,2)\cap(3,\infty)",
                                      r"(-\infty,2),(3,\infty)", r"(-\infty,2]\cup(3,\infty)"),
    r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}": (
        r"\begin{pmatrix} 1/5 & -18/5 \end{pmatrix}", r"(1/5, -18/5)",
        r"\begin{pmatrix} -18/5 \\ 1/5 \end{pmatrix}", r"\begin{pmatrix} 1/5 \end{pmatrix}"),
    r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}": (
        r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}", "-1", "-I"),
    r"\text{(C)}": ("D", "C or D", "(C) 5", "CC", "A, B, C", "not C", "C}", "(C"),
    r"\text{Evelyn}": ("Eve", "Evelyn and Navin", r"\text{Evelyn} \text{Navin}", "E"),
    # What a careful person might take.
    r"\sqrt{2}": ("2^{1/2}",), r"\pi": (r"\sqrt{\pi^2}", r"\frac{2(\pi)}{2}"), "12": ("12 cm",),
    "864 inches^2": ("864 in^2", "864 square inches"), "10%": ("0.1",), "k+1": ("1(k+1)",),
    "cot x": (r"\frac{\cos x}{\sin x}",), "4": (r"4 \text{ (four)}", "4_{10}"),
    r"\text{C}": ("(C) Plane",), r"\frac{\pi}{2}": (r"\frac\pi 2",),
}  # fmt: skip

ASKED = [
    ("By what percent does it rise?", "10", r"10\%", True),
    ("By what percent does it rise?", "10", "10 percent", True),
    ("With a discount of $30\\%$, what is left?", "10", r"10\%", False),
    ("How many degrees are in the angle?", "120", r"120^\circ", True),
    ("What is the degree of $f$?", "3", r"3^\circ", False),
    ("Find $x$ in $x^\\circ$.", "28", r"28^\circ", True),
    ("How many dollars does she pay?", "36", r"\$36", True),
    ("How many dollars, in cents, is that?", "59", r"\$59", False),
    ("How many centimeters long is it?", "12", "12 cm", False),
    ("Find $ab$.", "12", "12 ab", False),
    ("Solve for $x$: $2x = 10$.", "5", "$5 = x$", True),
    ("Solve for $x$: $2x = 10$.", "5", "y=5", False),
    ("Solve for $x$: $2x = 10$.", "x=5", "y=5", False),
    (r"Solve \[x+2=7.\]", "5", "x = 5", True),
    ("A car takes what time?", "5", "x = 5", False),
    ("Find $f(x)$.", "2x+1", "f(x)=2x+1", True),
    ("Find all roots of $x^2=1$.", "1,-1", r"x=\pm 1", True),
    ("Find all roots of $x^2=1$.", "1,-1", "x=1, x=-1", True),
    ("Find all roots of $x^2=1$.", "1,-1", r"z=\pm 1", False),
    ("Solve $3 < x$.", "(3,4]", r"x \in (3, 4]", True),
    ("A pen costs \\$5, a book \\$7. Find $x$.", "5", "x=5", True),
    ("A pen costs \\$5, a book \\$7. Find $x$.", "5", "a=5", False),
    ("If $$2x=y$$ is a sum of $n$ and 1, find $n$.", "5", "n=5", True),
    (r"Find \(x\).", "5", "x=5", True),
    ("Factor $3x^2+9x+6$.", "3(x+1)(x+2)", "(3x+3)(x+2)", False),
    ("Factor $3x^2+9x+6$.", "3(x+1)(x+2)", r"(2+x)\cdot 3(x+1)", True),
    ("Factor $x^3-x$.", "x(x-1)(x+1)", "(x-1)x(x+1)", True),
    ("Find a factor of 10.", "5", "+5", True),
    ("Factor $x^2+5x+6$.", "(x+2)(x+3)", "x(x+5)+6", False),
    ("Factor $x^2+5x+6$.", "(x+2)(x+3)", r"(x+3) \cdot (x+2)", True),
]

HOSTILE = {
    "a tower of powers": "9^{9^{9^{9^{9}}}}",
    "a tower of indices": "x_{x^{x_{x}}}",
    "a huge power": "2^{99999999}",
    "a million digits": "9" * 1_000_000,
    "deep nesting": "(" * 100_000 + "18" + ")" * 100_000,
    "deep fractions": r"\frac{1}{" * 50 + "18" + "}" * 50,
    "a huge sum": r"\sum_{n=1}^{10^{9}} n!",
    "a big matrix": r"\begin{pmatrix}" + "1&" * 60 + r"\\" * 60 + r"\end{pmatrix}",
    "code": "__import__('os').system('sleep 60')",
    "code in LaTeX": r"\text{__import__('time').sleep(60)}",
    "a regular expression's worst": "a" * 150 + "{" * 149,
    "spaces": " " * 1_000_000 + "18" + " " * 1_000_000 + "x",
    "dollars": "$" * 299,
    "boxes": r"\boxed{" * 40 + "18" + "}" * 40,
    "fractions without end": r"\frac" * 59,
    "minus signs": "-" * 299 + "18",
    "units": "1" + " a" * 149,
    "powers of a sum": "(a+b)^{50}" * 20,
}


AS_PEOPLE_WRITE = {
    r"\frac{1}{2}": ("\u00bd", " \u00bd.", r"\boxed{\u00bd}".replace(r"\u00bd", "\u00bd")),
    r"-\frac{1}{2}": ("-\u00bd", "\u2013\u00bd"),
    r"\frac{3}{2}": ("1\u00bd", "1 \u00bd"),
    "x^2": ("x\u00b2", "x^{2}"),
    "x^{10}": ("x\u00b9\u2070",),
    "(x+1)^2": ("(x+1)\u00b2",),
    "-7": ("\u20137", "\u2012 7", "\u22127", "= -7", "= \u20137"),
    "73": ("= 73", r"\boxed{\boxed{73}}", r"$\boxed{\boxed{73}}$."),
    "B": (r"\text{B}", r"\textbf{(B)}", r"\text{(B)}", "(B)", r"\boxed{\text{B}}"),
    r"\emptyset": (
        r"\varnothing",
        "\u2205",
        r"\{\}",
        r"$\left\{ \right\}$",
        r"\boxed{\varnothing}",
    ),
    r"\varnothing": (r"\emptyset", "\u2205", r"\{ \}"),
    "\u2205": (r"\emptyset", r"\varnothing"),
    r"\infty": ("infinity", "$\\infty$", "Infinity", r"\text{infinity}", "\u221e", r"+\infty"),
    "infinity": (r"\infty", "\u221e", "Infinity", r"\text{Infinity}"),
    r"-\infty": ("-infinity", "\u2013\u221e", r"-\text{infinity}"),
    r"(-\infty, 3)": ("(-infinity, 3)", "(-\u221e, 3)"),
    "3:2": ("3 : 2", "3: 2", r"3\!:\!2", r"3 \colon 2", r"3\mathbin{:}2", "3\u22362", "$3 : 2$."),
    "3 : 2": ("3:2", r"\boxed{3:2}"),
    "3:2:1": ("3 : 2 : 1",),
    "True": ("true", r"\text{true}", r"\text{True}", "TRUE", "**True**", r"\boxed{\text{true}}."),
    r"\text{false}": ("False", "false", r"\text{False}", r"\mathrm{False}"),
    "Yes": ("yes", r"\text{Yes}", "Yes."),
    "no": ("No", r"\text{no}"),
    "caf\u00e9": ("cafe\u0301", " cafe\u0301\r\n"),
    "cafe\u0301": ("caf\u00e9",),
}
STILL_WRONG = {
    r"\frac{1}{2}": ("\u2153", "1\u00bd", "-\u00bd", "\u00bdx", "x\u00bd", "\u00bd\u00bd"),
    r"\frac{1}{4}": ("\u00bd\u00b2", "\u00bd\u00bd"),
    "9": ("3\u00b2",),
    "x^2": ("x\u00b3", "2x", "x2", "\u00b2", "X\u00b2"),
    "-2": ("7\u20139",),
    "7": ("\u20137", "= -7", "== 7", "7 ="),
    "1, 2": ("1\u20132",),
    "B": (r"\text{C}", r"\text{b}", r"\text{B or C}", r"\textbf{(A)}", r"\text{BB}"),
    "73": (r"\boxed{\boxed{72}}", r"\boxed{\boxed{72}, 73}", r"\boxed{\boxed{7}3}", r"\text{73}"),
    r"\infty": (
        "-infinity",
        "infinityx",
        "-\u221e",
        r"\text{infinite}",
        "0",
        "oo",
    ),
    r"-\infty": ("infinity", r"\infty", r"\text{infinity}", "--infinity"),
    r"(-\infty, 3)": ("(-infinity, 3]", "(infinity, 3)"),
    r"\emptyset": (
        "0",
        r"\{0\}",
        r"\{\emptyset\}",
        r"\{\{\}\}",
        r"\phi",
        r"\{\},1",
        r"1\{\}",
        "{}",
        "()",
    ),
    "1": (r"1\emptyset", r"1\{\}", r"\{\}1", "1:", ":1", "1:1"),
    "3:2": ("2:3", "2 : 3", "6:4", "3/2", "3:2:1", "3", "3:22", "3::2", "3 : 2 or 2 : 3", "1.5"),
    "3:2:1": ("3:2", "1:2:3"),
    r"\frac{3}{2}": ("3:2", "3 : 2"),
    "32": ("3 : 2", "3:2"),
    "True": ("False", "not true", "True or False", "T", "eurT", r"\text{untrue}", "true, false"),
    "true": ("eurt", "tr u e", "rue", r"\text{false}", "t", r"t \cdot r \cdot u \cdot e"),
    "no": ("on", "yes", "none", "n"),
    "Yes": ("No", "y", "Yes and no"),
    "caf\u00e9": ("cafe", "caf\u00e8", "cafe\u0300"),
}


def test_an_answer_as_people_write_it_is_right():
    cases = [("", gold, said, True) for gold, all in AS_PEOPLE_WRITE.items() for said in all]
    assert misjudged(*cases) == []


def test_what_only_looks_like_it_stays_wrong():
    cases = [("", gold, said, False) for gold, all in STILL_WRONG.items() for said in all]
    assert misjudged(*cases) == []


def misjudged(*cases):
    """Those of (question, gold, answer, expected) with another verdict than is expected."""
    found = are_right([Ask(*case[:3]) for case in cases])
    return [case for case, right in zip(cases, found, strict=True) if right != case[3]]


def test_the_gold_in_another_spelling_is_right():
    cases = [("", gold, answer, True) for gold in SAME for answer in (gold, *SAME[gold])]
    assert misjudged(*cases) == []


def test_what_is_worth_another_thing_or_unfinished_is_wrong():
    asked = "Solve for $x$ and $y$."
    cases = [(asked, gold, answer, False) for gold in OTHER for answer in OTHER[gold]]
    assert misjudged(*cases) == []


def test_what_the_question_asks_for_decides_on_units_and_names():
    assert misjudged(*ASKED) == []


RULES = {
    "no answer is never right": [("18", None, False), ("None", None, False)],
    "an order counts only where it means something": [
        ("3, 5, 7", "7,3,5", True), ("(3,5,7)", "(7,3,5)", False),
        (r"(1)\cup(2)", r"(2)\cup(1)", True), ("=", "x=", False), ("x^{2}", "x^{}", False),
    ],
    # Sums in another order are not the same text, so algebra finds the partners.
    "each element of a list needs a partner of its own": [
        (r"1+\sqrt{2}, 1+\sqrt{3}", r"\sqrt{3}+1, \sqrt{2}+1", True),
        (r"1+\sqrt{2}, 1+\sqrt{3}", r"\sqrt{3}+1, \sqrt{3}+1", False),
        (r"1+\sqrt{2}, 1+\sqrt{3}", r"\sqrt{2}+1, 1+\sqrt{2}", False),
    ],
    "a gold that cannot be read is right as it stands only": [
        (r"\lfloor x \rfloor", r"$\lfloor x \rfloor$", True), (r"\lfloor x \rfloor", "x", False),
        (r"\lfloor x \rfloor", r"\lfloor y \rfloor", False),
        ("Müller", " Müller\n", True), ("Müller", "Muller", False),
    ],
    "the longest answer is read and no longer one": [
        ("1" * 40, r"\quad" * 52 + "1" * 40, True), ("1" * 40, r"\quad" * 53 + "1" * 40, False),
    ],
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_holds_whatever_the_question(rule):
    assert misjudged(*(("", *case) for case in RULES[rule])) == []


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_is_wrong_at_once_and_harms_nothing(answer):
    asks = [Ask("Find $x$.", gold, answer) for gold in ("18", "x^2+x", r"\text{even}", "1, 2")]
    start_s = time.process_time()
    with pytest.MonkeyPatch.context() as patch:
        # None of them is even shown to algebra, which has limits of its own.
        patch.setattr("potluck.tasks.math.pool.shared_workers", None)
        assert are_right(asks) == [False] * 4
    assert time.process_time() - start_s < 1
    assert are_right([Ask("", r"\sqrt{8}", r"2\sqrt{2}")]) == [True]


pieces = st.lists(
    st.sampled_from(
        [*"0123456789abxi +-*/^_=,.()[]{}$%&!<>|", "\\", "\\frac", "\\sqrt", "\\pm", "\\{", "\\}",
         "\\text{", "\\cup", "\\in", "\\begin{pmatrix}", "\\end{pmatrix}", "\\\\", "\\boxed{",
         "^\\circ", "\\$", "\\left(", "\\right)", "\\cdot", "\\pi", "\u2212", "\0", "\ud800"]
    ),
    max_size=30,
).map("".join)  # fmt: skip
GOLDS = st.sampled_from(["18", "2k+2", "1,-2", "(3,4]", r"\text{even}", r"\$5", "x=5", r"\frac12"])


@given(pieces | st.text(), GOLDS | pieces)
def test_no_text_raises_and_a_text_is_itself_if_it_can_be_read(answer, gold):
    def equal(one, other):
        return False

    assert same_answer(gold, answer, equal=equal) in (True, False)


@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_read_exactly(value):
    sign = "- " if value < 0 else ""
    up, down = abs(value.numerator), value.denominator
    assert number(f"{sign}{up} / {down}") == value
    assert number(f"{sign}\\frac {{ {up} }} {{ {down} }}") == value
    assert number(f"{up // down} \\frac {{ {up % down} }} {{ {down} }}") == abs(value)


# The real golds.


@pytest.fixture(scope="module")
def rows(math500_path):
    lines = Path(math500_path, "test.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def spaced(gold):
    if re.search(r"text|mbox|\d,(\\!)?\s*\d{3}", gold):  # not within words and numbers
        return f"  {gold}\n"
    return "  " + re.sub(r"\\(?!begin|end)[a-z]+|[-+=,/^()\[\]]", r" \g<0> ", gold) + " \n"


def with_other_fractions(gold):
    one, other = ("dfrac", "frac") if "\\dfrac" in gold else ("frac", "dfrac")
    return gold.replace(f"\\{one}", f"\\{other}")


RESPELLED = {
    "spacing": spaced,
    "dfrac": with_other_fractions,
    "boxed in math": lambda gold: f"$\\boxed{{{gold}}}$.",
    "as text": lambda gold: gold.replace("\\left", "").replace("\\right", "").replace(",\\! ", ","),
}


@pytest.mark.parametrize("spelling", RESPELLED)
def test_every_gold_of_math500_is_right_in_every_spelling(rows, spelling):
    cases = [(r["problem"], r["answer"], RESPELLED[spelling](r["answer"]), True) for r in rows]
    assert (len(cases), misjudged(*cases)) == (500, [])


def test_every_gold_of_math500_is_wrong_for_the_problem_before_unless_it_is_equal(rows):
    pairs = list(pairwise([*rows, rows[0]]))
    asks = [Ask(this["problem"], this["answer"], following["answer"]) for this, following in pairs]
    right = [(a.gold, a.answer) for a, right in zip(asks, are_right(asks), strict=True) if right]
    assert sorted(right) == [("3", "3"), ("5", "x=5"), ("7", "7")]


COPIED = [
    (r"Express $\frac{3}{20}$ as a decimal.", "0.15", r"\frac{3}{20}"),
    (r"Simplify $\sqrt{242}$.", r"11\sqrt2", r"\sqrt{242}"),
    (r"Simplify $\dfrac{3}{\sqrt{27}}$.", r"\frac{\sqrt{3}}{3}", r"$\frac{3}{\sqrt{27}}$"),
    ("Factor $49x^2-9$.", "(7x+3)(7x-3)", "49x^2-9"),
    ("Factor $49x^2-9$.", "(7x+3)(7x-3)", "-9+1(49.0x^2)"),
    ("Express $3/20$ as a decimal.", "0.15", r"+\frac3{20}"),
    (r"For \$5 and $x=\sqrt{242}$, simplify $x$.", r"11\sqrt2", r"(1\sqrt{242})"),
    (r"Simplify \(\sqrt{242}\).", r"11\sqrt2", r"\sqrt{242.0}"),
]


def test_what_was_to_be_worked_out_is_no_answer():
    assert misjudged(*((*case, False) for case in COPIED)) == []
    assert misjudged(*((asked, gold, gold, True) for asked, gold, _ in COPIED)) == []
    # Not by its value alone.
    assert misjudged(*(("", *case[1:], True) for case in COPIED)) == []
    either = r"Which is larger, $\frac{1}{2}$ or $\frac{1}{3}$?"
    assert misjudged((either, r"\frac12", r"\dfrac{1}{2}", True)) == []


def test_a_question_of_a_million_signs_is_graded_all_the_same():
    assert are_right([Ask("数" * 200_000, r"3\sqrt{13}", r"\sqrt{117}")]) == [True]
