// Bundles the viewer into one page with nothing to load: node build.mjs [OUT]
// The policy in its head allows exactly this script and this style, and no connection at all.
import {createHash} from 'node:crypto';
import {mkdir, readFile, writeFile} from 'node:fs/promises';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {build} from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, 'dist', 'page.html');

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(here, entry)],
    absWorkingDir: here,
    bundle: true,
    minify: true,
    format: 'iife',
    target: 'es2022',
    charset: 'utf8',
    legalComments: 'inline',
    write: false,
  });
  return result.outputFiles[0].text.trim();
}

const hash = (text) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

const script = (await bundle('src/main.ts')).replaceAll('</script', '<\\/script');
const style = await bundle('src/style.css');
const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; ` +
    `img-src data:; base-uri 'none'; form-action 'none'`;
const parts = {csp: policy, style, script};
const template = await readFile(join(here, 'template.html'), 'utf8');
const page = template.replace(/@(csp|style|script)@/g, (_, name) => parts[name]);
await mkdir(dirname(out), {recursive: true});
await writeFile(out, page);
