"""Spellings of right answers that models use, and wrong answers near them, graded as in a run."""

from potluck.tasks.grading import same_number
from potluck.tasks.math.pool import Ask, are_right

NUMBERS = [
    ("1080", "1{,}080"), ("1080", r"\boxed{1{,}080}"), ("18", r"\$18"), ("18", r"\(18\)"),
    ("18", "$ 18"), ("0.5", ".5"), ("-5", "\u22125"), ("18", "**18**"), ("-5", "- 5"),
    ("18", "18\u20ac"), ("18", "\u00a318"),
]  # fmt: skip
"""(gold, spelling), as GSM8K and ``grading = "number"`` take them."""

MATHEMATICS = [
    ("Find the positive root of $x^2=2$.", r"\sqrt{2}", "2^{1/2}"),
    ("Solve $x+2=0$.", "-2", "(-2)"),
    ("How far is it?", r"1\frac45", "1 4/5"),
    ("Find the area.", r"864 \mbox{ inches}^2", "864 in^2"),
    ("How many centimeters long is it?", "12", "12 cm"),
    ("By what percentage?", r"10\%", "0.1"),
    ("How many are there?", "1000", "1 000"),
    ("Is it a (A) Line (B) Circle (C) Plane?", r"\text{(C)}", "(C) Plane"),
    ("How many are there?", "11", "**11**"),
    ("How many are there?", "11", r"The final answer is \boxed{11}"),
    ("How many are there?", "11", "\u200b11"),
    ("Divide $x^{30}-1$ by $x-1$.", r"\frac{x^{30}-1}{x-1}",
     r"\frac{(x^{15}-1)(x^{15}+1)}{x-1}"),
    ("A car takes what time?", "5", "x = 5"),
    ("How many are there?", "3", r"3 \text{ (three)}"),
]  # fmt: skip
"""(question, gold, spelling), as MATH-500 and ``grading = "math"`` take them."""

NO_NUMBERS = {
    "1080": ("1.080", "10,80", "1,0800", "108,0", "1 08 0", "1{,}08", "1{,}0800", "1{,}{,}080",
             r"\boxed{1{,}08}", "10{,}80", "{1080}", "1_080", "1'080", "01,080", "1,,080"),
    "18": ("17", "-18", "18.01", "1.8", "180", "81", "(5)", "(18)", "18 18", "1.8e1", "18e0",
           "18/1", "2^4+2", r"18\%", "18cm", "It is 18", "the answer is 18", "about 18", "~18",
           ">18", "18?", "18!", "18;", "18:", "#18", "half of 36", "0b10010", "XVIII", "inf",
           "$17$ $18$", "**17** **18**", "**17**18**", "**18", "18**", "* 18 *", "__18__", "`18`",
           r"\(17\) \(18\)", r"\(18", r"18\)", r"\(18\]", r"\boxed{17} \boxed{18}",
           r"\boxed{\boxed{18}}", r"\boxed{18", r"-\boxed{18}", r"\boxed{18}%", r"\boxed{17}18",
           r"\text{18}", r"\sqrt{324}", "$$$18", r"\$\$18", "\u20ac\u20ac18",
           "\u00a5 18 yen", "\u20ac18-", "$-", r"\$", "\u20ac", "-\u20ac-18", "\u201318",
           "- - 18", "18,", ",18", "..18"),
    "-5": ("5", "+5", "-5.5", "\u22126", "- 6", "5-", "(-5)", "-(5)", "-.5", "\u2212.5"),
    "0.5": ("5", ".05", "-.5", "1/2", "..5", ".5.0", ".5%", "0,5", "50%"),
}  # fmt: skip

NO_MATHEMATICS = [
    ("Find $x$.", r"\sqrt{2}", ("2^{1/3}", "2^{2/1}", "2^{-1/2}", "2^{1/2}+0", "4^{1/2}", "2^1/2",
                                "1.41421", r"2^{\frac{2}{1}}", "2")),
    ("Solve $x+2=0$.", "-2", ("(2)", "-(2)", "(-2)(1)", "(-2, -2)", "[-2]", "(-3)", "(-2", "y=-2",
                              r"\{-2\}")),
    ("How far is it?", r"1\frac45", ("14/5", "1 5/4", "1 4 5", "1, 4/5", "1 * 4/5", "-1 4/5",
                                     "1 4/50", "4/5", "11 4/5")),
    ("Find the area.", r"864 \mbox{ inches}^2", ("864 in", "864 in^3", "864 cm^2", "864 ft^2",
                                                 "6 ft^2", "863 in^2", "864 yd^2")),
    ("How many centimeters long is it?", "12", ("12 mm", "12 in", "12 m", "1.2 cm", "12 cm x",
                                               "12 eggs", r"12 \text{ km}", "cm 12", "120 mm",
                                               "12 centi")),
    ("Find $ab$.", "12", ("12 ab", "12 cm", "ab 12")),
    ("By what percentage?", r"10\%", ("0.01", "1", "0.1%", "x = 0.1", "1/100", "100", "0.10001",
                                      "-0.1", r"0.1 \text{ cm}")),
    ("How many are there?", "1000", ("10 00", "1 0 0 0", "1 00", "100 0", "1 000 0", "1 001",
                                    "1 000 000", "1, 000", "1. 000")),
    ("Is it a (A) Line (B) Circle (C) Plane?", r"\text{(C)}",
     ("(A) Line", "(C) Line", "(B) Circle", "(C) or (B)", "(C) Circle", "(C) Plane (B) Circle",
      "Plane", "(A) Line (C) Plane", "not (C) Plane", "(C) a Plane")),
    ("How many are there?", "11", ("**12**", "**11** **12**", "**11", r"The final answer is 11",
                                  r"The final answer is \boxed{12}", r"10 or \boxed{11}",
                                  r"The final answer is \boxed{11} or \boxed{12}",
                                  r"The answer is not \boxed{11}", r"\boxed{12} \boxed{11}",
                                  r"The final answer is \boxed{11}, or 12", "The final answer is",
                                  r"Maybe \boxed{11}", "\u200b12", "1\u200b2", "\u200b",
                                  "1 \u200b 1")),
    ("Divide $x^{30}-1$ by $x-1$.", r"\frac{x^{30}-1}{x-1}",
     (r"\frac{(x^{15}-1)(x^{15}-1)}{x-1}", r"\frac{(x^{15}-1)(x^{15}+1)}{x+1}", "x^{29}+1",
      r"\frac{(x^{15}-1)x^{15}+(x^{15}-1)}{x-1}+x-x")),
    ("Expand $(k+1)(k+2)$.", "k^2+3k+2", ("(k+2)(k+1)", "(1+k)(2+k)", "1((k+1)+(k^2+2k+1))")),
    ("Find $k$.", "2k+2", ("(k+4)+(k-2)", "1((k+4)+(k-2))", "2(k+3-2)", r"\frac{(k+4)+(k-2)}{1}",
                          "2(k+1)+k-k")),
    ("Solve for $y$.", "5", ("x = 5", "a = 5")),
    ("A car takes what time?", "5", ("x = 6", "x = y = 5", "x > 5", "x = 5, y = 5", "5 = x = 5")),
    ("How many are there?", "3", (r"3 \text{ (four)}", r"4 \text{ (three)}",
                                 r"3 \text{ (three or four)}", r"\text{ (three)}", r"3 \text{ (3)}",
                                 r"30 \text{ (three)}",
                                 r"3 \text{ three four}")),
]  # fmt: skip


def test_an_answer_is_right_in_the_spellings_that_models_use():
    assert [case for case in NUMBERS if not same_number(*case)] == []
    verdicts = are_right([Ask(*case) for case in MATHEMATICS])
    assert [case for case, right in zip(MATHEMATICS, verdicts, strict=True) if not right] == []


def test_nothing_near_a_right_answer_is_right():
    near = [(gold, answer) for gold, answers in NO_NUMBERS.items() for answer in answers]
    assert [case for case in near if same_number(*case)] == []
    asks = [Ask(asked, gold, answer) for asked, gold, near in NO_MATHEMATICS for answer in near]
    assert [ask for ask, right in zip(asks, are_right(asks), strict=True) if right] == []


def test_a_tolerance_is_a_share_of_the_gold():
    for gold, answer, tolerance, right in (
        ("3244047.0999999996", "3244047.1", 1e-6, True),
        ("3244047.0999999996", "3244047.1", 0.0, False),
        ("100", "101", 0.01, True), ("100", "101.0001", 0.01, False), ("-100", "-99", 0.01, True),
        ("100", "-100", 0.01, False), ("0", "0.000001", 0.5, False), ("0", "-0", 0.5, True),
        ("2e-6", "0.000002", 0.5, False), ("18", "eighteen", 0.5, False),
    ):  # fmt: skip
        assert same_number(gold, answer, tolerance=tolerance) == right, (gold, answer, tolerance)
