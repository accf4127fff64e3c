// Debian's Chromium, driven by Playwright's core: nothing is downloaded.
import {existsSync} from 'node:fs';
import {pathToFileURL} from 'node:url';
import {chromium} from 'playwright-core';

const PLACES = [process.env.PEAKLINE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
export const chromiumPath = PLACES.find((path) => path && existsSync(path));

export async function launch() {
  return chromium.launch({executablePath: chromiumPath, args: ['--no-sandbox', '--disable-gpu']});
}

// Opens a file and remembers all that must not happen: errors, and requests beyond the file itself.
export async function open(browser, file, options = {}) {
  const context = await browser.newContext({viewport: {width: 1280, height: 900}, ...options});
  const page = await context.newPage();
  const problems = [];
  const requests = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) problems.push(message.text()); });
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('dialog', (dialog) => { problems.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => requests.push(request.url()));
  const url = pathToFileURL(file).href;
  await page.goto(url);
  await page.waitForSelector('h1');
  return {page, context, problems, requests: () => requests.filter((each) => each !== url && !each.startsWith('data:'))};
}
