// Two hypercores over memory, in one process: the time that blocks take from one to the other.
//
// node hypercore_pair.cjs COUNT, in a folder with hypercore (10) and random-access-memory from npm.
// Prints seconds by the wall and of the processor, as JSON.

const { createRequire } = require('node:module')
const path = require('node:path')

const load = createRequire(path.join(process.cwd(), 'package.json'))
const Hypercore = load('hypercore')
const ram = load('random-access-memory')

async function main (count) {
  const source = new Hypercore(ram)
  await source.ready()
  const line = Buffer.alloc(100, 'a line of text, ')
  for (let number = 0; number < count; number++) {
    line.writeUInt32BE(number)
    await source.append(Buffer.from(line))
  }
  const target = new Hypercore(ram, source.key)
  await target.ready()

  const started = process.cpuUsage()
  const begin = process.hrtime.bigint()
  const [one, other] = [source.replicate(true), target.replicate(false)]
  one.pipe(other).pipe(one)
  await target.update({ wait: true })
  await target.download({ start: 0, end: count }).done()
  const wall = Number(process.hrtime.bigint() - begin) / 1e9
  const used = process.cpuUsage(started)
  if (target.contiguousLength !== count) throw new Error('blocks are missing')
  console.log(JSON.stringify({ wall_s: wall, processor_s: (used.user + used.system) / 1e6 }))
  process.exit(0)
}

main(Number(process.argv[2]))
