// The report in a real browser: PEAKLINE and MAKE_RECORDING name the programs under test.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {after, before, describe, test} from 'node:test';
import {chromiumPath, launch, open} from './browser.mjs';

const {PEAKLINE, MAKE_RECORDING} = process.env;
const skip = !chromiumPath ? 'no Chromium is installed' : !PEAKLINE ? 'PEAKLINE is not set' : false;

describe('report', {skip, concurrency: false}, () => {
  let folder;
  let browser;
  const files = {};
  const json = {};

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'peakline-'));
    for (const name of ['training', 'odd-names', 'scripts', 'empty', 'two-devices', 'pictures', 'odd-pictures', 'stacks', 'synthetic:200000']) {
      const recording = join(folder, `${name.replace(':', '-')}.peak`);
      execFileSync(MAKE_RECORDING, [name, recording]);
      files[name] = recording.replace('.peak', '.html');
      execFileSync(PEAKLINE, ['report', recording, '-o', files[name]], {stdio: 'ignore'});
      json[name] = JSON.parse(execFileSync(PEAKLINE, ['show', recording, '--json', '-'],
                                           {stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 1 << 28}));
    }
    files.diff = join(folder, 'diff.html');
    const pair = [files.training, files['odd-names']].map((file) => file.replace('.html', '.peak'));
    execFileSync(PEAKLINE, ['diff', ...pair, '-o', files.diff], {stdio: 'ignore'});
    json.diff = JSON.parse(execFileSync(PEAKLINE, ['diff', ...pair, '--json', '-'], {stdio: ['ignore', 'pipe', 'ignore']}));
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    rmSync(folder, {recursive: true, force: true});
  });

  async function withPage(name, options, use) {
    const opened = await open(browser, files[name], options);
    try {
      await use(opened.page);
      assert.deepEqual(opened.problems, [], 'errors in the console');
      assert.deepEqual(opened.requests(), [], 'requests');
    } finally {
      await opened.context.close();
    }
  }

  const number = async (locator, name) => Number(await locator.getAttribute(name));
  const shares = (page) => page.$$eval('#alive-categories tr', (rows) => Object.fromEntries(
    rows.map((row) => [row.dataset.category, Number(row.dataset.bytes)])));

  for (const name of ['training', 'odd-names', 'empty', 'two-devices', 'synthetic:200000', 'diff']) {
    test(`${name} opens without errors and without a single request`, () => withPage(name, {}, async (page) => {
      await page.waitForTimeout(100);
    }));
  }

  test('the streams of a step and trade-offs are drawn', () => withPage('pictures', {}, async (page) => {
    assert.equal(await page.locator('#streams tr').count(), 1);
    assert.equal(await page.locator('#streams th').textContent(), 'default stream');
    const widths = await page.$$eval('#streams rect', (all) => all.map((rect) => Number(rect.getAttribute('width'))));
    assert.deepEqual(widths, [400, 300]);
    assert.equal(await page.locator('#tradeoffs figure').count(), 1);
    assert.match(await page.locator('#tradeoffs figcaption').textContent(), /Net.*1\.000 MiB, 2\.500 ms/);
    assert.equal(await page.locator('#tradeoffs circle').count(), 2);
    assert.doesNotMatch(await page.locator('#notes').textContent(), /default stream/);
  }));

  test('streams and trade-offs of another form are left out', () => withPage('odd-pictures', {}, async (page) => {
    assert.equal(await page.locator('#streams, #tradeoffs').count(), 0);
  }));

  test('the first look shows the numbers of the JSON', () => withPage('training', {}, async (page) => {
    const moment = page.locator('#moment');
    assert.equal(await number(moment, 'data-bytes'), json.training.peak_allocated);
    assert.equal(await number(moment, 'data-event'), json.training.peak.event);
    assert.deepEqual(await shares(page), json.training.by_subcategory);
  }));

  test('hovering shows totals and categories of the JSON', () => withPage('training', {}, async (page) => {
    const over = page.locator('.u-over');
    const box = await over.boundingBox();
    const {points, categories} = json.training.timeline;
    const event = json.training.peak.event;
    await page.mouse.move(box.x + box.width * event / (json.training.events - 1), box.y + 60);
    const total = page.locator('#tip .total');
    await total.waitFor();
    assert.equal(await number(total, 'data-event'), event);
    assert.equal(await number(total, 'data-bytes'), json.training.peak_allocated);
    const rows = await page.$$eval('#tip .row[data-category]', (all) => Object.fromEntries(
      all.map((row) => [row.dataset.category, Number(row.dataset.bytes)])));
    assert.deepEqual(rows, json.training.by_category);
    // Any other moment: what the JSON's timeline says as the next stretch begins.
    const later = points.find((point) => point.first_event > 40 && point.by_category.some((bytes) => bytes > 0));
    await page.mouse.move(box.x + box.width * (later.first_event - 1) / (json.training.events - 1), box.y + 60);
    assert.equal(await number(total, 'data-event'), later.first_event - 1);
    for (const [i, name] of categories.entries()) {
      const row = page.locator(`#tip .row[data-category="${name}"]`);
      const shown = await row.count() ? await number(row, 'data-bytes') : 0;
      assert.equal(shown, later.by_category[i], name);
    }
  }));

  test('a click shows what is alive at that moment', () => withPage('training', {}, async (page) => {
    const box = await page.locator('.u-over').boundingBox();
    await page.mouse.click(box.x + box.width * 0.2, box.y + 100);
    const moment = page.locator('#moment');
    const event = await number(moment, 'data-event');
    assert.ok(Math.abs(event - 0.2 * json.training.events) < 3, `event ${event}`);
    const sum = Object.values(await shares(page)).reduce((a, b) => a + b, 0);
    assert.equal(sum, await number(moment, 'data-bytes'));
    const leaves = await page.$$eval('#picture div.tile', (tiles) => tiles.reduce((all, tile) => all + Number(tile.dataset.bytes), 0));
    assert.ok(leaves > 0.9 * sum && leaves <= sum, 'the treemap holds what is alive');
    await page.click('#to-peak');
    assert.equal(await number(moment, 'data-event'), json.training.peak.event);
  }));

  test('treemap and flame graph open a module and go back, with the keyboard too', () => withPage('training', {}, async (page) => {
    const net = page.locator('#picture button[aria-label^="Net,"]');
    await net.focus();
    await page.keyboard.press('Enter');
    const crumb = page.locator('.crumbs [aria-current]');
    assert.match(await crumb.textContent(), /^Net/);
    await page.click('text=Flame graph');
    assert.equal(await page.getAttribute('#picture', 'data-kind'), 'flame');
    assert.ok(await page.locator('#picture .tile').count() > 5);
    await page.click('text=By op');
    await page.locator('#picture [aria-label^="aten::mm,"]').waitFor();
    const mm = json.training.ops.find((op) => op.name === 'aten::mm');
    assert.equal(await number(page.locator('#picture [aria-label^="aten::mm,"]'), 'data-bytes'), mm.at_peak);
  }));

  test('modules can be searched and sorted, and agree with the JSON', () => withPage('training', {}, async (page) => {
    await page.fill('#modules-table-search', 'MLP');
    const cells = (column) => page.$$eval(`#modules-table tbody tr > :nth-child(${column})`, (all) => all.map((cell) => cell.dataset.value));
    const expected = json.training.modules.filter((row) => row.path.includes('mlp'));
    assert.deepEqual(await cells(1), expected.map((row) => row.path));
    assert.deepEqual((await cells(3)).map(Number), expected.map((row) => row.peak));
    await page.fill('#modules-table-search', '');
    const header = page.locator('#modules-table thead th').nth(2);
    await header.locator('button').focus();
    await page.keyboard.press('Enter');
    assert.equal(await header.getAttribute('aria-sort'), 'descending');
    const sorted = (await cells(3)).map(Number);
    assert.deepEqual(sorted, [...sorted].sort((a, b) => b - a));
    assert.equal(sorted.length, json.training.modules.length);
    await page.keyboard.press('Enter');
    assert.equal(await header.getAttribute('aria-sort'), 'ascending');
    await page.keyboard.press('Enter');
    assert.equal(await header.getAttribute('aria-sort'), null);
  }));

  test('ops and steps agree with the JSON', () => withPage('training', {}, async (page) => {
    const ops = await page.$$eval('#ops-table tbody tr', (rows) => rows.map((row) => [...row.children].map((cell) => cell.dataset.value)));
    assert.deepEqual(ops.map((row) => [row[0], Number(row[1]), Number(row[2])]),
                     json.training.ops.map((op) => [op.name, op.at_peak, op.allocated]));
    const steps = await page.$$eval('#steps-table tbody tr', (rows) => rows.map((row) => Number(row.children[1].dataset.value)));
    assert.deepEqual(steps, json.training.steps.map((step) => step.peak_allocated));
    await page.click('[data-step="1"]');
    assert.equal(await number(page.locator('#moment'), 'data-bytes'), json.training.steps[0].peak_allocated);
  }));

  test('lines, regions and growth agree with the JSON', () => withPage('stacks', {}, async (page) => {
    const rows = (table) => page.$$eval(`#${table} tbody tr`, (all) => all.map((row) => [...row.children].map((cell) => cell.dataset.value)));
    assert.deepEqual((await rows('lines-table')).map((row) => [row[0], Number(row[1]), Number(row[2])]),
                     json.stacks.lines.map((row) => [`${row.file}:${row.line}`, row.at_peak, row.allocated]));
    assert.deepEqual((await rows('regions-table')).map((row) => [row[0], Number(row[2])]),
                     json.stacks.regions.map((row) => [row.path, row.highest]));
    assert.deepEqual((await rows('growth-table')).map((row) => Number(row[2])), json.stacks.growth.map((row) => row.kept));
  }));

  test('what is alive is shown by line, and a line over time, with the keyboard too', () => withPage('stacks', {}, async (page) => {
    await page.click('text=By line');
    const sum = await page.$$eval('#picture div.tile', (tiles) => tiles.reduce((all, tile) => all + Number(tile.dataset.bytes), 0));
    assert.ok(sum > 0.9 * json.stacks.peak_allocated && sum <= json.stacks.peak_allocated, `tiles hold ${sum}`);
    await page.click('text=Flame graph');
    await page.locator('#picture [aria-label*="model.py:21"]').first().waitFor();
    await page.locator('#lines-table button.link', {hasText: 'model.py:21'}).first().focus();
    await page.keyboard.press('Enter');
    const line = json.stacks.lines.filter((row) => row.line === 21);
    const at_peak = line.reduce((all, row) => all + row.at_peak, 0);
    assert.ok(await number(page.locator('#line-over-time'), 'data-most') >= at_peak);
    await page.locator('#line-over-time svg').waitFor();
  }));

  test('a recording without call stacks has none of this', () => withPage('training', {}, async (page) => {
    assert.equal(await page.locator('#lines, #regions, #growth').count(), 0);
    assert.equal(await page.locator('text=By line').count(), 0);
  }));

  test('the keyboard moves the moment and zooms', () => withPage('training', {}, async (page) => {
    const moment = page.locator('#moment');
    await page.focus('#chart');
    const start = await number(moment, 'data-event');
    await page.keyboard.press('ArrowRight');
    assert.equal(await number(moment, 'data-event'), start + 1);
    await page.keyboard.press('Shift+ArrowLeft');
    assert.equal(await number(moment, 'data-event'), start - 19);
    await page.keyboard.press('Home');
    assert.equal(await number(moment, 'data-event'), start);
    const span = () => page.evaluate(() => document.querySelectorAll('#lanes').length && document.getElementById('lanes').toDataURL());
    const all = await span();
    await page.keyboard.press('+');
    await page.waitForTimeout(50);
    assert.notEqual(await span(), all);
    await page.keyboard.press('Escape');
    await page.waitForTimeout(50);
    assert.equal(await span(), all);
  }));

  test('dragging zooms', () => withPage('training', {}, async (page) => {
    const box = await page.locator('.u-over').boundingBox();
    const event = await number(page.locator('#moment'), 'data-event');
    await page.mouse.move(box.x + box.width * 0.2, box.y + 50);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.4, box.y + 50, {steps: 5});
    await page.mouse.up();
    assert.equal(await number(page.locator('#moment'), 'data-event'), event, 'the moment stays');
    await page.mouse.move(box.x + 2, box.y + 50);
    const first = await number(page.locator('#tip .total'), 'data-event');
    assert.ok(Math.abs(first - 0.2 * json.training.events) < 4, `the chart begins at ${first}`);
  }));

  test('names are text, whatever they say', () => withPage('scripts', {}, async (page) => {
    assert.equal(await page.evaluate(() => document.querySelectorAll('script').length), 2);
    assert.ok(await page.locator('#modules-table', {hasText: '<script>alert(1)</script>'}).count() > 0);
    assert.ok(await page.locator('#ops-table', {hasText: '<img src=x onerror=alert(2)>'}).count() > 0);
    assert.equal(await page.locator('img').count(), 0);
  }));

  test('the segment map says what the recording says', () => withPage('training', {}, async (page) => {
    assert.equal(await page.textContent('#map-allocated'), '409.0 MiB');
    const painted = await page.evaluate(() => {
      const map = document.getElementById('segment-map');
      const {data} = map.getContext('2d').getImageData(0, 0, map.width, map.height);
      return new Set(Array.from({length: data.length / 4}, (_, i) => data.slice(4 * i, 4 * i + 3).join())).size;
    });
    assert.ok(painted > 4, 'blocks have colours');
  }));

  test('dark and light differ, and the button switches', () => withPage('training', {colorScheme: 'dark'}, async (page) => {
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    assert.equal(dark, 'rgb(20, 23, 27)');
    await page.click('#theme');
    assert.notEqual(await background(), dark);
  }));

  test('400 pixels are enough', () => withPage('training', {viewport: {width: 400, height: 800}}, async (page) => {
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 400, `the page is ${width} pixels wide`);
    await page.locator('#picture .tile').first().waitFor();
  }));

  test('devices can be chosen', () => withPage('two-devices', {}, async (page) => {
    const other = json['two-devices'].devices[0];
    await page.click(`header .choice button:has-text("${other.device}")`);
    assert.equal(await number(page.locator('#moment'), 'data-bytes'), other.peak_allocated);
  }));

  test('a diff shows what changed', () => withPage('diff', {}, async (page) => {
    const rows = await page.$$eval('#categories-table tbody tr', (all) => all.map((row) => [row.children[0].dataset.value, Number(row.children[3].dataset.value)]));
    assert.deepEqual(rows, json.diff.categories.map((row) => [row.name, row.change]));
  }));
});
