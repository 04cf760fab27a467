// SPDX-License-Identifier: Apache-2.0 OR MIT
// Processes by child_process, and a server of several processes by cluster, which replaces those that die.
const { execSync, spawn, spawnSync, fork } = require('child_process');
const cluster = require('cluster'), http = require('http');
if (process.argv[2] === 'child') {
  process.on('message', (m) => { process.send(m * 2); process.disconnect(); });
} else if (cluster.isPrimary) {
  console.log(execSync('echo a shell | tr a-z A-Z').toString().trim());
  const ran = spawnSync('sh', ['-c', 'cat; exit 4'], { input: 'in' });
  console.log('code', ran.status, String(ran.stdout));
  const waits = spawn('sleep', ['1000000']);
  waits.on('exit', (code, signal) => console.log('ended by', signal));
  waits.kill('SIGTERM');
  const child = fork(__filename, ['child']);
  child.on('message', (m) => console.log('told', m));
  child.send(21);
  cluster.on('exit', () => cluster.fork());
  cluster.fork();
  cluster.fork();
} else {
  http.createServer((_, answer) => answer.end(`worker ${process.pid}\n`)).listen(8000);
}
