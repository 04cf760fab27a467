# SPDX-License-Identifier: Apache-2.0 OR MIT
# Processes by multiprocessing in its three ways, concurrent.futures and subprocess.
import concurrent.futures as futures, multiprocessing as mp, os, subprocess
from multiprocessing import shared_memory

def square(n): return n * n

def adds(numbers, total, lock, block):
    while (n := numbers.get()) is not None:
        with lock:
            total.value += n
            block.buf[0] += 1

if __name__ == '__main__':
    for method in ['fork', 'spawn', 'forkserver']:
        context = mp.get_context(method)
        numbers, total, lock = context.Queue(), context.Value('i', 0, lock=False), context.Lock()
        block = shared_memory.SharedMemory(create=True, size=4096)
        workers = [context.Process(target=adds, args=(numbers, total, lock, block)) for _ in range(2)]
        for w in workers: w.start()
        for n in range(100): numbers.put(n)
        for w in workers: numbers.put(None)
        for w in workers: w.join()
        print(method, total.value, block.buf[0], [w.exitcode for w in workers])
        block.close(); block.unlink()
        with futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            print(method, list(pool.map(square, range(5))))
    killed = subprocess.Popen(['sleep', '1000000']); killed.kill(); print('ended by', -killed.wait())
    try: subprocess.run(['sleep', '1000000'], timeout=0.1)
    except subprocess.TimeoutExpired: print('too late')
    pipeline = subprocess.run('seq 5 | grep -v 3 | paste -sd+', shell=True, text=True, capture_output=True)
    print(pipeline.stdout, end='')
