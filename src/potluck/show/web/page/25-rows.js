// Rows of curves: smoothed, thinned to what can be seen, found again; and ticks of an axis.

/** Mean of the values so far that forgets: `factor` 0 is none, 0.95 a lot. */
function smoothed(values, factor) {
  let sum = 0;
  let weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = factor * sum + (1 - factor) * value;
    weight = factor * weight + (1 - factor);
    return sum / weight;
  });
}

/** Keep what can be seen: of each pixel's column the first, the lowest, the highest and the last. */
function thinned(x, y, from, to, width) {
  const kept = [];
  let column = -1;
  let first = 0;
  let low = 0;
  let high = 0;
  let last = 0;
  const close = () => {
    if (column < 0) return;
    kept.push(...[...new Set([first, low, high, last])].sort((one, other) => one - other));
  };
  const scale = Math.max(1, width) / (to - from || 1);
  for (let row = 0; row < x.length; row += 1) {
    if (y[row] === null || y[row] === undefined || x[row] < from || x[row] > to) continue;
    const here = Math.floor((x[row] - from) * scale);
    if (here !== column) {
      close();
      [column, first, low, high] = [here, row, row, row];
    }
    if (y[row] < y[low]) low = row;
    if (y[row] > y[high]) high = row;
    last = row;
  }
  close();
  return kept;
}

function ticks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1)
    found.push(at * step);
  return found;
}

/** Row of `x` (rising) that is nearest to `at`. */
function nearestRow(x, at) {
  let low = 0;
  let high = x.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - x[low - 1] <= x[low] - at ? low - 1 : low;
}
