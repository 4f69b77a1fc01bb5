// Rows of curves: smoothed, thinned to what can be seen, found again; and ticks of an axis.

/** Mean over the `reach` values to each side; near an end over half of it more on one side at most,
    so that little lags. */
function smoothed(values, reach) {
  const sums = [0];
  const counts = [0];
  for (const value of values) {
    sums.push(sums.at(-1) + (value ?? 0));
    counts.push(counts.at(-1) + (value !== null));
  }
  return values.map((value, at) => {
    const [before, after] = [at, values.length - 1 - at].map((count) => Math.min(reach, count));
    const most = Math.min(before, after) + Math.ceil(reach / 2);
    const [from, to] = [at - Math.min(before, most), at + Math.min(after, most) + 1];
    return value === null ? null : (sums[to] - sums[from]) / (counts[to] - counts[from]);
  });
}

const usualReach = (count) => (count < 20 ? 0 : Math.max(3, Math.round(count / 30)));

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
